"""What drafting cost and what it saved, in seconds, so that finding out whether it pays stays cheap."""

from __future__ import annotations

from typing import Final

# Drafting may lose this share of the time that decoding takes.
_SHARE: Final = 0.02
# What it may lose before anything is known; and the most that is laid by, for texts on which it does not pay.
_FIRST_S, _MOST_S = 0.25, 1.0


class DraftingAccount:
    """The balance: what drafting may still lose. In the red nothing is drafted until decoding has earned it
    again. Mutated by Speculation only.
    """

    def __init__(self) -> None:
        self.balance_s = _FIRST_S

    @property
    def is_open(self) -> bool:
        return self.balance_s > 0.0

    def earn(self, decode_s: float) -> None:
        """A step that takes so long without drafts was planned."""
        self._add(_SHARE * decode_s)

    def spend(self, seconds: float) -> None:
        """Drafts were made, or computed in a step."""
        self._add(-seconds)

    def save(self, seconds: float) -> None:
        """Drafts were right: steps of so long are not needed."""
        self._add(seconds)

    def _add(self, seconds: float) -> None:
        self.balance_s = min(self.balance_s + seconds, _MOST_S)
