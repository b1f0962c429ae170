"""A tokenizer without files: one token a byte, and an end token."""

from __future__ import annotations

from collections.abc import Sequence

from ferrum.core.errors import InvalidRequest


class ByteTokenizer:
    """Ids 0 to 255 are bytes, 256 ends an answer, 257 begins a prompt when ``adds_bos``."""

    EOS_ID = 256
    BOS_ID = 257

    def __init__(self, *, adds_bos: bool = False) -> None:
        self.adds_bos = adds_bos
        self.vocab_size = 258
        self.eos_ids = frozenset({self.EOS_ID})
        self.control_ids = frozenset({self.EOS_ID, self.BOS_ID})
        self.has_dummy_prefix = False

    def encode(self, text: str) -> list[int]:
        try:
            return list(text.encode())
        except UnicodeEncodeError as error:
            raise InvalidRequest("half a surrogate pair is not a character", "prompt") from error

    def encode_prompt(self, text: str) -> list[int]:
        return [self.BOS_ID] * self.adds_bos + self.encode(text)

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else b""

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")
