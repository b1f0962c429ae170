"""A tokenizer without files: one token a byte, and an end token."""

from __future__ import annotations

from collections.abc import Sequence

from ferrum.core.errors import InvalidRequest


class ByteTokenizer:
    """Ids 0 to 255 are bytes, 256 "<eos>" ends an answer, 257 "<bos>" begins a prompt when ``adds_bos``."""

    EOS_ID = 256
    BOS_ID = 257
    _CONTROL_TEXTS = ("<eos>", "<bos>")

    def __init__(self, *, adds_bos: bool = False) -> None:
        self.adds_bos = adds_bos
        self.vocab_size = 258
        self.eos_ids = frozenset({self.EOS_ID})
        self.control_ids = frozenset({self.EOS_ID, self.BOS_ID})
        self.role_ids = frozenset({self.BOS_ID})
        self.unused_ids: frozenset[int] = frozenset()
        self.has_dummy_prefix = False

    def encode(self, text: str) -> list[int]:
        try:
            return list(text.encode())
        except UnicodeEncodeError as error:
            raise InvalidRequest("half a surrogate pair is not a character", "prompt") from error

    def encode_continuation(self, text: str) -> list[int]:
        return self.encode(text)

    def encode_prompt(self, text: str) -> list[int]:
        return [self.BOS_ID] * self.adds_bos + self.encode(text)

    def token_bytes(self, token_id: int) -> bytes:
        if token_id < 256:
            return bytes([token_id])
        return self._CONTROL_TEXTS[token_id - 256].encode() if token_id < self.vocab_size else b""

    def token_id(self, text: str) -> int | None:
        if text in self._CONTROL_TEXTS:
            return 256 + self._CONTROL_TEXTS.index(text)
        data = text.encode()
        return data[0] if len(data) == 1 else None

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(token_id for token_id in ids if token_id < 256).decode("utf-8", "replace")
