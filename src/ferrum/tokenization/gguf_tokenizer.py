"""A Tokenizer from GGUF metadata (keys `tokenizer.ggml.*`), whichever of the four kinds it is."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ferrum.core.errors import TokenizerError
from ferrum.tokenization.byte_level_bpe import build_byte_level_encoder, byte_level_token_bytes
from ferrum.tokenization.control_tokens import ControlToken, ControlTokens
from ferrum.tokenization.metadata import TokenizerMetadata
from ferrum.tokenization.pre_tokenizers import PRE_KEY, find_pre_tokenizer
from ferrum.tokenization.sentencepiece_bpe import build_sentencepiece_encoder, sentencepiece_token_bytes
from ferrum.tokenization.special_tokens import (
    PromptDefaults,
    SpecialTokens,
    read_special_tokens,
    with_control_ends,
)
from ferrum.tokenization.text_encoder import TextEncoder
from ferrum.tokenization.tokenizer import Tokenizer, TokenizerParts
from ferrum.tokenization.unigram import build_unigram_encoder
from ferrum.tokenization.vocabulary import TokenType, Vocabulary, read_vocabulary
from ferrum.tokenization.wordpiece import build_wordpiece_encoder

MODEL_KEY = "tokenizer.ggml.model"
SPACE_PREFIX_KEY = "tokenizer.ggml.add_space_prefix"
CHAT_TEMPLATE_KEY = "tokenizer.chat_template"

_KINDS = ("gpt2", "llama", "t5", "bert")


def tokenizer_from_gguf(metadata: TokenizerMetadata, cache_directory: Path | None) -> Tokenizer:
    """Builds the tokenizer; what is slow to find out is kept in ``cache_directory`` when there is one.

    Raises TokenizerError naming the key that is missing, malformed, out of range or not known here.
    """
    if MODEL_KEY not in metadata:
        raise TokenizerError(MODEL_KEY, "the key is missing, so the file carries no tokenizer")
    kind = metadata.get_str(MODEL_KEY)
    if kind not in _KINDS:
        raise TokenizerError(
            MODEL_KEY, f"no tokenizer kind named {kind!r} is known; there are: {', '.join(_KINDS)}"
        )
    vocabulary = with_control_ends(read_vocabulary(metadata))
    if kind == "gpt2":
        pre_tokenizer = find_pre_tokenizer(metadata.get_str(PRE_KEY) if PRE_KEY in metadata else None)
        special = read_special_tokens(metadata, vocabulary, PromptDefaults(adds_bos=pre_tokenizer.adds_bos))
        encoder = build_byte_level_encoder(metadata, vocabulary, pre_tokenizer)
    elif kind == "llama":
        special = read_special_tokens(metadata, vocabulary, PromptDefaults(adds_bos=True))
        prefix = _start_prefix(metadata)
        encoder = build_sentencepiece_encoder(vocabulary, special.unknown_id, prefix, cache_directory)
    elif kind == "t5":
        special = read_special_tokens(metadata, vocabulary, PromptDefaults(adds_bos=False, adds_eos=True))
        encoder = build_unigram_encoder(metadata, vocabulary, special.unknown_id, _start_prefix(metadata))
    else:
        special = read_special_tokens(
            metadata, vocabulary, PromptDefaults(adds_bos=True, adds_separator=True)
        )
        encoder = build_wordpiece_encoder(vocabulary, special.unknown_id)
    return Tokenizer(_parts(metadata, kind, vocabulary, special, encoder))


def _start_prefix(metadata: TokenizerMetadata) -> str:
    adds_prefix = metadata.get_bool(SPACE_PREFIX_KEY) if SPACE_PREFIX_KEY in metadata else True
    return " " if adds_prefix else ""


def _parts(
    metadata: TokenizerMetadata,
    kind: str,
    vocabulary: Vocabulary,
    special: SpecialTokens,
    encoder: TextEncoder,
) -> TokenizerParts:
    bytes_of = byte_level_token_bytes if kind == "gpt2" else sentencepiece_token_bytes
    controls = vocabulary.control_ids
    return TokenizerParts(
        encoder=encoder,
        bytes_of=partial(bytes_of, vocabulary),
        control_tokens=ControlTokens({text: ControlToken(text, controls[text]) for text in controls}),
        control_ids=vocabulary.ids_of_type(TokenType.CONTROL, TokenType.UNKNOWN),
        special=special,
        id_of=partial(_find_id, vocabulary),
        vocab_size=vocabulary.size,
        has_dummy_prefix=kind == "bert" or (kind != "gpt2" and _start_prefix(metadata) != ""),
        # SentencePiece puts its dummy prefix between the beginning token and the first word.
        bos_keeps_start=True,
        chat_template=metadata.get_str(CHAT_TEMPLATE_KEY) if CHAT_TEMPLATE_KEY in metadata else None,
        unused_ids=vocabulary.filler_ids,
    )


def _find_id(vocabulary: Vocabulary, text: str) -> int | None:
    for ids in (vocabulary.control_ids, vocabulary.ordinary_ids, vocabulary.byte_ids):
        if text in ids:
            return ids[text]
    return None
