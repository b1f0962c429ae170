"""What constraints ask of a tokenizer. Imports no grammar engine, so that start-up can name it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class VocabularyTokenizer(Protocol):
    """A vocabulary with the bytes of its tokens."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def eos_ids(self) -> Collection[int]: ...
    @property
    def control_ids(self) -> Collection[int]: ...
    @property
    def has_dummy_prefix(self) -> bool: ...
    def token_bytes(self, token_id: int) -> bytes: ...
    def encode(self, text: str) -> list[int]: ...
