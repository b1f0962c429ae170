"""How many more tokens a step may compute."""

from __future__ import annotations


class TokenBudget:
    """Counts down the tokens of one step. Mutated by the scheduler while it writes one plan."""

    __slots__ = ("remaining",)

    def __init__(self, num_tokens: int) -> None:
        self.remaining = num_tokens

    def take(self, wanted: int) -> int:
        """Grants ``wanted`` tokens or as many as are left, and says how many."""
        granted = min(wanted, self.remaining)
        self.remaining -= granted
        return granted
