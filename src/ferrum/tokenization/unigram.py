"""SentencePiece unigram from GGUF metadata (`tokenizer.ggml.model` = "t5"): the likeliest cut by scores.

Source: Kudo 2018, "Subword Regularization"; text is first normalised by the file's own character map.
"""

from __future__ import annotations

import tokenizers
from tokenizers import Regex, models, normalizers, pre_tokenizers

from ferrum.core.errors import TokenizerError
from ferrum.tokenization.metadata import TokenizerMetadata
from ferrum.tokenization.sentencepiece_bpe import SPACE
from ferrum.tokenization.text_encoder import TextEncoder
from ferrum.tokenization.user_defined_tokens import match_in_written_text
from ferrum.tokenization.vocabulary import SCORES_KEY, Vocabulary

CHARACTER_MAP_KEY = "tokenizer.ggml.precompiled_charsmap"
EXTRA_SPACES_KEY = "tokenizer.ggml.remove_extra_whitespaces"

# The model's ids are positions in its list, so tokens that text must not reach need a stand-in there. The
# normaliser takes this noncharacter out of the text, so no text can spell one.
_STAND_IN = "\ufdd0"


def build_unigram_encoder(
    metadata: TokenizerMetadata, vocabulary: Vocabulary, unknown_id: int | None, start_prefix: str
) -> TextEncoder:
    """Raises TokenizerError without scores or unknown token, or for a malformed character map."""
    if vocabulary.scores is None:
        raise TokenizerError(SCORES_KEY, "the key is missing, but a unigram vocabulary needs scores")
    if unknown_id is None:
        raise TokenizerError("tokenizer.ggml.unknown_token_id", "a unigram vocabulary needs an unknown token")
    reachable = {**vocabulary.byte_ids, **vocabulary.ordinary_ids}
    pieces = [
        (text if reachable.get(text) == token_id else f"{_STAND_IN}{token_id}", float(score))
        for token_id, (text, score) in enumerate(zip(vocabulary.tokens, vocabulary.scores, strict=True))
    ]
    model = models.Unigram(pieces, unk_id=unknown_id, byte_fallback=bool(vocabulary.byte_ids))
    at_start = _build_backend(model, metadata, vocabulary, "always" if start_prefix else "never")
    after_token = _build_backend(model, metadata, vocabulary, "never")
    return TextEncoder(at_start=at_start, after_token=after_token)


def _build_backend(
    model: models.Unigram, metadata: TokenizerMetadata, vocabulary: Vocabulary, prepend_scheme: str
) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.Sequence(_read_normalizers(metadata))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=prepend_scheme)
    match_in_written_text(backend, vocabulary)
    return backend


def _read_normalizers(metadata: TokenizerMetadata) -> list[normalizers.Normalizer]:
    found: list[normalizers.Normalizer] = [normalizers.Replace(_STAND_IN, "")]
    if CHARACTER_MAP_KEY in metadata:
        character_map = bytes((metadata.get_int_array(CHARACTER_MAP_KEY) & 0xFF).astype("uint8"))
        if character_map:
            try:
                found.append(normalizers.Precompiled(character_map))
            except Exception as error:  # The library raises nothing narrower.
                raise TokenizerError(CHARACTER_MAP_KEY, f"the character map is malformed: {error}") from None
    if EXTRA_SPACES_KEY not in metadata or metadata.get_bool(EXTRA_SPACES_KEY):
        found += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    return found
