"""An answer as a stream of symbols: characters, and control tokens, which have none."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Sequence
from typing import Protocol

Symbol = str | int
"""A character, or the id of a control token."""


class SymbolTokenizer(Protocol):
    """What reading an answer asks of a tokenizer."""

    @property
    def control_ids(self) -> Collection[int]: ...
    def token_id(self, text: str) -> int | None: ...
    def token_bytes(self, token_id: int) -> bytes: ...
    def encode(self, text: str) -> list[int]: ...


def symbols_of_text(tokenizer: SymbolTokenizer, text: str) -> tuple[Symbol, ...]:
    """A control token spelled so is itself; every other text is its characters, however they are cut up."""
    token_id = tokenizer.token_id(text)
    if token_id is not None and token_id in tokenizer.control_ids:
        return (token_id,)
    return tuple(text)


def symbols_of_token(
    tokenizer: SymbolTokenizer, pending: bytes, token_id: int
) -> tuple[Sequence[Symbol], bytes]:
    """What a token adds after the unfinished character ``pending``, and the one it leaves unfinished."""
    if token_id in tokenizer.control_ids:
        return (token_id,), pending
    data = pending + tokenizer.token_bytes(token_id)
    text, num_bytes = codecs.utf_8_decode(data, "replace", False)
    return text, data[num_bytes:]
