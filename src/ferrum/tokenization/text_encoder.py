"""Ordinary text to token ids, over one vocabulary. Knows no control tokens: no text can produce one here."""

from __future__ import annotations

from dataclasses import dataclass

import tokenizers

from ferrum.core.errors import InvalidRequest

# Characters that are encoded in less than a millisecond.
_LONG_TEXT = 2000


@dataclass(frozen=True, slots=True)
class TextEncoder:
    """Cuts text into tokens; text at the start of a prompt may be cut otherwise than text after a token.

    ``start_prefix`` is put before non-empty text at the start (SentencePiece's dummy prefix). ``at_start``
    and ``after_token`` are the same object for most vocabularies. Neither may recognise special tokens.
    """

    at_start: tokenizers.Tokenizer
    after_token: tokenizers.Tokenizer
    start_prefix: str = ""

    def encode_at_start(self, text: str) -> list[int]:
        return _encode(self.at_start, self.start_prefix, text) if text else []

    def encode_after_token(self, text: str) -> list[int]:
        return _encode(self.after_token, "", text) if text else []


def _encode(backend: tokenizers.Tokenizer, prefix: str, text: str) -> list[int]:
    """Raises InvalidRequest for a text that is not valid Unicode."""
    try:
        if len(text) > _LONG_TEXT:
            # Alone this call of the library's lets others have the interpreter meanwhile: a long prompt must
            # not hold up the steps of those who are being answered.
            return backend.encode_batch_fast([prefix + text], add_special_tokens=False)[0].ids
        return backend.encode(prefix + text, add_special_tokens=False).ids
    except TypeError:
        raise InvalidRequest(_surrogate_problem(text)) from None


def _surrogate_problem(text: str) -> str:
    """The library takes every string but those with half a surrogate pair."""
    where, character = next((i, c) for i, c in enumerate(text) if "\ud800" <= c <= "\udfff")
    return f"the text is not valid Unicode: character {where} is {character!a}, half of a surrogate pair"
