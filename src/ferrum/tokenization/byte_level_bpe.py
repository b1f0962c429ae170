"""Byte-level BPE from GGUF metadata (`tokenizer.ggml.model` = "gpt2"): a merge list over the byte alphabet.

Text is cut into words by the pre-tokenizer that `tokenizer.ggml.pre` names, then merged inside each word.
Bytes that the vocabulary lacks are dropped, as the models' own tokenizers do.
"""

from __future__ import annotations

from collections.abc import Sequence

import tokenizers
from tokenizers import models

from ferrum.core.errors import TokenizerError
from ferrum.tokenization.byte_alphabet import bytes_of_token
from ferrum.tokenization.metadata import TokenizerMetadata
from ferrum.tokenization.pre_tokenizers import PreTokenizer
from ferrum.tokenization.text_encoder import TextEncoder
from ferrum.tokenization.user_defined_tokens import match_in_written_text
from ferrum.tokenization.vocabulary import TokenType, Vocabulary

MERGES_KEY = "tokenizer.ggml.merges"
_WRITTEN_AS_TEXT = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)


def build_byte_level_encoder(
    metadata: TokenizerMetadata, vocabulary: Vocabulary, pre_tokenizer: PreTokenizer
) -> TextEncoder:
    """Raises TokenizerError naming the merges key when an entry is malformed or merges unknown tokens."""
    if MERGES_KEY not in metadata:
        raise TokenizerError(MERGES_KEY, "the key is missing, but byte-level BPE cannot work without merges")
    ids = vocabulary.ordinary_ids
    entries = metadata.get_str_array(MERGES_KEY)
    backend = tokenizers.Tokenizer(_build_model(entries, ids, pre_tokenizer.has_whole_words))
    normalizer = pre_tokenizer.build_normalizer()
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizer.build()
    match_in_written_text(backend, vocabulary)
    return TextEncoder(at_start=backend, after_token=backend)


def byte_level_token_bytes(vocabulary: Vocabulary, token_id: int) -> bytes:
    """The exact bytes of a token."""
    text = vocabulary.tokens[token_id]
    if int(vocabulary.types[token_id]) in _WRITTEN_AS_TEXT:
        return text.encode("utf-8", "surrogateescape")
    return bytes_of_token(text)


def _build_model(entries: Sequence[str], ids: dict[str, int], has_whole_words: bool) -> models.BPE:
    pairs = [(left, right) for left, _, right in [entry.partition(" ") for entry in entries]]
    try:
        return models.BPE(ids, pairs, ignore_merges=has_whole_words)
    except Exception:  # The library raises nothing narrower.
        # It cannot say which entry is wrong, and a space in front may belong to a token.
        return models.BPE(ids, _read_merges(entries, ids), ignore_merges=has_whole_words)


def _read_merges(entries: Sequence[str], ids: dict[str, int]) -> list[tuple[str, str]]:
    merges: list[tuple[str, str]] = []
    for index, entry in enumerate(entries):
        # The first character is never the separator: a token may itself be a space.
        cut = entry.find(" ", 1)
        if cut < 0 or cut + 1 == len(entry):
            raise TokenizerError(
                MERGES_KEY, f"entry {index} is {entry!r}, not two tokens with a space between"
            )
        left, right = entry[:cut], entry[cut + 1 :]
        if left not in ids or right not in ids or left + right not in ids:
            raise TokenizerError(
                MERGES_KEY, f"entry {index} ({entry!r}) merges or makes a token that is unknown"
            )
        merges.append((left, right))
    return merges
