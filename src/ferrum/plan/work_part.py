"""WorkPart: consecutive tokens of one sequence, and how many keys they see."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkPart:
    """``num_tokens`` tokens of one sequence from position ``start`` on."""

    start: int
    num_tokens: int

    def num_visible_keys(self, window: int | None) -> int:
        """Query-key pairs: the token at position p sees p + 1 keys, or the ``window`` newest of them."""
        first, last = self.start + 1, self.start + self.num_tokens
        if window is None or last <= window:
            return (first + last) * self.num_tokens // 2
        num_growing = max(0, window - self.start)
        return (first + window) * num_growing // 2 + window * (self.num_tokens - num_growing)

    def num_read_keys(self, window: int | None) -> int:
        """Distinct keys of the cache that the tokens see together."""
        end = self.start + self.num_tokens
        return end if window is None else end - max(0, self.start + 1 - window)
