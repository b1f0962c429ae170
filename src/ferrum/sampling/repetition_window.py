"""RepetitionWindow: what DRY reads, the last tokens and how far back a repetition may reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ferrum.core.arrays import Int32Array

TokenBytes = Callable[[int], bytes]


class RepetitionWindow:
    """The last ``window`` tokens (None: all) of prompt and answer, and how many came after a breaker.

    A breaker counts with the token that completes its text, wherever the borders between tokens lie. Mutated
    by ``add``.
    """

    def __init__(
        self,
        prompt_ids: Sequence[int],
        window: int | None,
        breakers: Sequence[bytes],
        token_bytes: TokenBytes,
    ) -> None:
        self._window = window
        self._breakers = tuple(breakers)
        self._token_bytes = token_bytes
        self._kept_bytes = max(map(len, breakers), default=1) - 1
        self._tokens = np.array(prompt_ids, np.int32)
        self._num_tokens = len(prompt_ids)
        self._num_unbroken, self._text = self._read_backwards(prompt_ids)

    @property
    def tokens(self) -> Int32Array:
        """[at most window]; a view that ``add`` may change."""
        start = 0 if self._window is None else max(0, self._num_tokens - self._window)
        return self._tokens[start : self._num_tokens]

    @property
    def num_unbroken(self) -> int:
        """Tokens after the last breaker."""
        return self._num_unbroken

    def add(self, token_id: int) -> None:
        if self._num_tokens == len(self._tokens):
            self._tokens = np.concatenate([self._tokens, np.zeros(max(64, self._num_tokens), np.int32)])
        self._tokens[self._num_tokens] = token_id
        self._num_tokens += 1
        data = self._token_bytes(token_id)
        self._num_unbroken = 0 if self._completes_breaker(self._text, data) else self._num_unbroken + 1
        self._text = self._last_bytes(self._text + data)

    def copy(self) -> RepetitionWindow:
        """One that goes on by itself."""
        twin = object.__new__(RepetitionWindow)
        twin._window, twin._breakers, twin._token_bytes = self._window, self._breakers, self._token_bytes
        twin._kept_bytes, twin._num_unbroken, twin._text = self._kept_bytes, self._num_unbroken, self._text
        twin._tokens, twin._num_tokens = self._tokens.copy(), self._num_tokens
        return twin

    def _read_backwards(self, token_ids: Sequence[int]) -> tuple[int, bytes]:
        """Tokens after the last breaker and the last bytes; reads no further back than it must."""
        pieces: list[bytes] = []  # last token first
        for count in range(len(token_ids)):
            before = self._bytes_before(token_ids, len(token_ids) - 1 - count)
            data = self._token_bytes(token_ids[-1 - count])
            if self._completes_breaker(before, data):
                return count, self._last_bytes(before + data + b"".join(reversed(pieces)))
            pieces.append(data)
        return len(token_ids), self._last_bytes(b"".join(reversed(pieces)))

    def _bytes_before(self, token_ids: Sequence[int], index: int) -> bytes:
        text = b""
        while len(text) < self._kept_bytes and index > 0:
            index -= 1
            text = self._token_bytes(token_ids[index]) + text
        return self._last_bytes(text)

    def _completes_breaker(self, before: bytes, data: bytes) -> bool:
        return any(
            breaker in before[len(before) - min(len(before), len(breaker) - 1) :] + data
            for breaker in self._breakers
        )

    def _last_bytes(self, text: bytes) -> bytes:
        return text[max(0, len(text) - self._kept_bytes) :]
