"""A tokenizer for an engine without a model: words become numbers, numbers become words."""

from __future__ import annotations

from collections.abc import Collection

STUB_VOCABULARY_SIZE = 32_000


class StubTokenizer:
    """Word i of a text is token i modulo the vocabulary; token N reads "token_N". No special tokens."""

    eos_ids: Collection[int] = ()
    control_ids: Collection[int] = ()
    role_ids: Collection[int] = ()
    unused_ids: Collection[int] = ()
    # Words are joined by the space before each one, which is dropped before the first.
    has_dummy_prefix = True

    def __init__(self, vocab_size: int = STUB_VOCABULARY_SIZE) -> None:
        self.vocab_size = vocab_size

    def encode(self, text: str) -> list[int]:
        return [index % self.vocab_size for index, _ in enumerate(text.split())]

    encode_continuation = encode

    def encode_prompt(self, text: str) -> list[int]:
        return self.encode(text) or [0]

    def token_bytes(self, token_id: int) -> bytes:
        return f" token_{token_id}".encode()

    def token_id(self, text: str) -> int:
        return 0
