"""What became of the tokens that were drafted for a request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DraftUse:
    """Tokens that were drafted and computed, and those of them that were right."""

    drafted: int = 0
    accepted: int = 0

    def plus(self, drafted: int, accepted: int) -> DraftUse:
        return DraftUse(self.drafted + drafted, self.accepted + accepted)
