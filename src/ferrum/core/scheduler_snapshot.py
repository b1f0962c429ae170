"""SchedulerSnapshot: what the scheduler holds between two steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedulerSnapshot:
    """Counts of requests by phase, of prompt tokens that wait, and of KV blocks."""

    num_waiting: int
    num_waiting_tokens: int
    num_prefilling: int
    num_decoding: int
    num_blocks: int
    num_used_blocks: int

    @property
    def num_running(self) -> int:
        return self.num_prefilling + self.num_decoding
