"""SentencePiece-style BPE from GGUF metadata (`tokenizer.ggml.model` = "llama"): scores instead of merges.

SentencePiece repeatedly joins the two neighbours whose union has the best score (Kudo and Richardson 2018,
`bpe_model.cc`); that is a merge list ordered by the score of the result. Spaces are written as U+2581,
characters outside the vocabulary become byte tokens "<0x00>" to "<0xFF>".
"""

from __future__ import annotations

from pathlib import Path

import tokenizers
from tokenizers import models, normalizers

from ferrum.core.collector_pause import collector_paused
from ferrum.core.errors import TokenizerError
from ferrum.tokenization.merge_table import MergeTable, load_or_build_merges
from ferrum.tokenization.text_encoder import TextEncoder
from ferrum.tokenization.user_defined_tokens import match_in_normalized_text
from ferrum.tokenization.vocabulary import SCORES_KEY, TokenType, Vocabulary

SPACE = "▁"


def build_sentencepiece_encoder(
    vocabulary: Vocabulary, unknown_id: int | None, start_prefix: str, cache_directory: Path | None
) -> TextEncoder:
    """``start_prefix`` is the dummy prefix: a space, or nothing. Raises TokenizerError without scores."""
    if vocabulary.scores is None:
        raise TokenizerError(SCORES_KEY, "the key is missing, but a SentencePiece vocabulary needs scores")
    merges = load_or_build_merges(vocabulary, cache_directory)
    backend = tokenizers.Tokenizer(_build_model(vocabulary, merges, unknown_id))
    backend.normalizer = normalizers.Replace(" ", SPACE)
    # SentencePiece looks for them where spaces are U+2581 already.
    match_in_normalized_text(backend, vocabulary)
    return TextEncoder(at_start=backend, after_token=backend, start_prefix=start_prefix)


def sentencepiece_token_bytes(vocabulary: Vocabulary, token_id: int) -> bytes:
    """The exact bytes of a token: one for a byte token, else its text with U+2581 as a space."""
    text = vocabulary.tokens[token_id]
    kind = int(vocabulary.types[token_id])  # NumPy's integers are slow to compare with an enum's members.
    if kind == TokenType.BYTE:
        return bytes([_byte_of(text, token_id)])
    if kind not in (TokenType.CONTROL, TokenType.UNKNOWN):
        text = text.replace(SPACE, " ")
    return text.encode("utf-8", "surrogateescape")


def _build_model(vocabulary: Vocabulary, merges: MergeTable, unknown_id: int | None) -> models.BPE:
    tokens = vocabulary.tokens
    ids = {**vocabulary.byte_ids, **vocabulary.ordinary_ids}
    unknown = tokens[unknown_id] if unknown_id is not None else None
    if unknown is not None:
        ids.setdefault(unknown, unknown_id)  # type: ignore[arg-type]
    with collector_paused():
        left = map(tokens.__getitem__, merges.left)
        right = map(tokens.__getitem__, merges.right)
        pairs = list(zip(left, right, strict=True))
        return models.BPE(ids, pairs, unk_token=unknown, fuse_unk=True, byte_fallback=True)


def _byte_of(text: str, token_id: int) -> int:
    try:
        value = int(text.removeprefix("<0x").removesuffix(">"), 16)
    except ValueError:
        value = -1
    if not 0 <= value <= 255:
        raise TokenizerError(
            "tokenizer.ggml.tokens",
            f"token {token_id} is a byte token, but its text is {text!r}, not <0x00> to <0xFF>",
        )
    return value
