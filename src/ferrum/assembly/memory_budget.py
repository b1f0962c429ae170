"""MemoryBudget: how many bytes the model may use, and who says so."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ferrum.assembly.memory_available import AvailableMemory
from ferrum.core.config import EngineConfig
from ferrum.core.errors import ResourceExhausted


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """``is_explicit``: somebody named the number, so all of it is meant to be used.

    ``source`` says where it comes from, ``how_to_raise`` what a person would do to have more; ``share`` is
    the part of what is available that the budget takes.
    """

    num_bytes: int
    source: str
    how_to_raise: str
    is_explicit: bool
    share: float = 1.0

    def missing_bytes(self, needed: int) -> int:
        """How much more there must be, at the source, for ``needed`` bytes to fit."""
        return max(0, math.ceil((needed - self.num_bytes) / self.share))


def choose_budget(config: EngineConfig, available: AvailableMemory | None) -> MemoryBudget | None:
    """The explicit bound, else a share of what is available; None where neither is known.

    Raises ResourceExhausted when the explicit bound is more than there is.
    """
    if config.memory_bytes is not None:
        if available is not None and config.memory_bytes > available.num_bytes:
            raise ResourceExhausted(
                "memory (bytes)",
                needed=config.memory_bytes,
                available=available.num_bytes,
                advice=f"that is what {available.source.name} leaves; lower --memory",
            )
        return MemoryBudget(config.memory_bytes, "--memory", "raise --memory", is_explicit=True)
    if available is None:
        return None
    share = config.memory_utilization
    return MemoryBudget(
        int(available.num_bytes * share),
        f"{share:.0%} of what {available.source.name} leaves",
        available.source.how_to_raise,
        is_explicit=False,
        share=share,
    )
