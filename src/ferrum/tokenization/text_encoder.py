"""Ordinary text to token ids, over one vocabulary. Knows no control tokens: no text can produce one here."""

from __future__ import annotations

from dataclasses import dataclass

import tokenizers

from ferrum.core.errors import InvalidRequest


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
        return _encode(self.at_start, self.start_prefix + text) if text else []

    def encode_after_token(self, text: str) -> list[int]:
        return _encode(self.after_token, text) if text else []


def _encode(backend: tokenizers.Tokenizer, text: str) -> list[int]:
    try:
        return backend.encode(text, add_special_tokens=False).ids
    except UnicodeEncodeError as error:
        where = f"character {error.start} is {text[error.start]!a}"
        raise InvalidRequest(f"the text is not valid Unicode: {where}, half of a surrogate pair") from None
