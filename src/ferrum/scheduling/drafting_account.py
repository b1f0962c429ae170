"""What drafting cost and what it saved, so that finding out whether it pays stays cheap."""

from __future__ import annotations

from typing import Final

# Drafting may lose this share of the time that decoding takes.
_SHARE: Final = 0.02
# What it may lose before anything is known, and the most that is laid by, for texts on which it does not pay.
_FIRST, _MOST = 40.0, 100.0
# A call that the system held up says nothing of drafts: no debt is larger.
_LEAST = -25.0


class DraftingAccount:
    """The balance: what drafting may still lose, in steps without drafts. In the red nothing is drafted until
    decoding has earned it again. Mutated by Speculation only.
    """

    def __init__(self) -> None:
        self.balance = _FIRST

    @property
    def is_open(self) -> bool:
        return self.balance > 0.0

    def earn(self) -> None:
        """A step was planned."""
        self._add(_SHARE)

    def spend(self, num_steps: float) -> None:
        """Drafts were made, or computed in a step, which took as long as so many steps."""
        self._add(-num_steps)

    def save(self, num_steps: float) -> None:
        """Drafts were right: so many steps are not needed."""
        self._add(num_steps)

    def _add(self, num_steps: float) -> None:
        self.balance = max(_LEAST, min(self.balance + num_steps, _MOST))
