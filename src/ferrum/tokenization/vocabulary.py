"""The tokens of a vocabulary with their types and scores, read from GGUF metadata and checked.

Source: the GGUF specification's `tokenizer.ggml.*` keys; the token types are SentencePiece's piece types.
Knows nothing of how text is cut into these tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ferrum.core.arrays import FloatArray
from ferrum.core.errors import TokenizerError
from ferrum.tokenization.metadata import TokenizerMetadata

TOKENS_KEY = "tokenizer.ggml.tokens"
TYPES_KEY = "tokenizer.ggml.token_type"
SCORES_KEY = "tokenizer.ggml.scores"


class TokenType(IntEnum):
    """What a token stands for; the numbers are those of the file."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id. Texts may repeat: the lowest id is the one that text is encoded to, all decode.

    ``types`` holds TokenType numbers [vocab_size]; ``scores`` is None where the file has none [vocab_size].
    """

    tokens: tuple[str, ...]
    types: NDArray[np.int64]
    scores: FloatArray | None

    @property
    def size(self) -> int:
        return len(self.tokens)

    @cached_property
    def ordinary_ids(self) -> dict[str, int]:
        """Texts that ordinary text may become: no control, unknown, unused, byte or undecodable ones."""
        return self._ids_of({TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNDEFINED})

    @cached_property
    def control_ids(self) -> dict[str, int]:
        """Texts of the control and unknown tokens."""
        return self._ids_of({TokenType.CONTROL, TokenType.UNKNOWN})

    @cached_property
    def user_defined_ids(self) -> dict[str, int]:
        """Texts of the tokens that are cut out of ordinary text before anything else."""
        return self._ids_of({TokenType.USER_DEFINED})

    @cached_property
    def byte_ids(self) -> dict[str, int]:
        """Texts such as "<0x0A>" of the tokens that stand for one byte."""
        return self._ids_of({TokenType.BYTE})

    @cached_property
    def filler_ids(self) -> frozenset[int]:
        """Ids without a text, and those that a converter named "[PAD5]" to make the vocabulary as wide as the
        model. Other unused tokens are left alone: some models were trained to use theirs.
        """
        unused = self.ids_of_type(TokenType.UNUSED)
        fillers = frozenset(token_id for token_id in unused if self.tokens[token_id] == f"[PAD{token_id}]")
        if "" not in self.tokens:
            return fillers
        return fillers.union(token_id for token_id, text in enumerate(self.tokens) if not text)

    def ids_of_type(self, *types: TokenType) -> frozenset[int]:
        return frozenset(np.flatnonzero(np.isin(self.types, types)).tolist())

    def _ids_of(self, types: set[TokenType]) -> dict[str, int]:
        ids = np.flatnonzero(np.isin(self.types, list(types))).tolist()
        texts = list(map(self.tokens.__getitem__, ids))
        found = dict(zip(texts, ids, strict=True))
        if len(found) == len(ids) and "" not in found and _is_valid_unicode("".join(texts)):
            return found
        found = {}
        for text, token_id in zip(texts, ids, strict=True):
            if text and _is_valid_unicode(text):
                found.setdefault(text, token_id)
        return found


def read_vocabulary(metadata: TokenizerMetadata) -> Vocabulary:
    """Reads tokens, types (all normal where absent) and scores. Raises TokenizerError naming the key."""
    if TOKENS_KEY not in metadata:
        raise TokenizerError(TOKENS_KEY, "the key is missing, so the file carries no vocabulary")
    tokens = tuple(metadata.get_str_array(TOKENS_KEY))
    if not tokens:
        raise TokenizerError(TOKENS_KEY, "the vocabulary is empty")
    return Vocabulary(tokens, _read_types(metadata, len(tokens)), _read_scores(metadata, len(tokens)))


def _read_types(metadata: TokenizerMetadata, vocab_size: int) -> NDArray[np.int64]:
    if TYPES_KEY not in metadata:
        return np.full(vocab_size, TokenType.NORMAL, dtype=np.int64)
    types = np.asarray(metadata.get_int_array(TYPES_KEY), dtype=np.int64)
    _require_length(TYPES_KEY, len(types), vocab_size)
    wrong = np.flatnonzero((types < 0) | (types > max(TokenType)))
    if wrong.size:
        first = int(wrong[0])
        raise TokenizerError(TYPES_KEY, f"entry {first} is {types[first]}, but token types are 0 to 6")
    return types


def _read_scores(metadata: TokenizerMetadata, vocab_size: int) -> FloatArray | None:
    if SCORES_KEY not in metadata:
        return None
    scores = np.asarray(metadata.get_float_array(SCORES_KEY), dtype=np.float32)
    _require_length(SCORES_KEY, len(scores), vocab_size)
    if np.isnan(scores).any():
        raise TokenizerError(SCORES_KEY, f"entry {int(np.flatnonzero(np.isnan(scores))[0])} is not a number")
    return scores


def _require_length(key: str, length: int, vocab_size: int) -> None:
    if length != vocab_size:
        raise TokenizerError(key, f"it has {length} entries, but {TOKENS_KEY} has {vocab_size}")


def _is_valid_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
