"""SchedulingPolicy: in which order requests that wait are let in, and who gives way. Chosen by name."""

from __future__ import annotations

from enum import StrEnum


class SchedulingPolicy(StrEnum):
    """FCFS: as they came. PRIORITY: lower ``priority`` first, then as they came (vLLM's names)."""

    FCFS = "fcfs"
    PRIORITY = "priority"
