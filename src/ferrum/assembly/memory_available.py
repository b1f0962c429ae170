"""How many bytes this process may still take: what the machine has, or less if a control group says so."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

from ferrum.assembly.control_groups import group_folders, read_text

KIBIBYTE = 1024

# Stacks and heaps of threads reserve address space that they never touch.
THREADS_ADDRESS_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class MemorySource:
    """Who sets a limit, for "what NAME leaves", and what a person does to have more."""

    name: str
    how_to_raise: str


MACHINE = MemorySource("the machine", "free memory")
ADDRESS_SPACE = MemorySource("ulimit -v", "raise ulimit -v")
CONTROL_GROUP = MemorySource("the control group", "raise the control group's limit")


@dataclass(frozen=True, slots=True)
class AvailableMemory:
    """The tightest limit, and who sets it."""

    num_bytes: int
    source: MemorySource


def read_available_memory(root: Path = Path("/")) -> AvailableMemory | None:
    """The tightest limit, from the files below ``root``; None where the system does not tell.

    Files: proc_meminfo(5), proc_pid_limits(5), proc_pid_statm(5) and cgroups(7); version 1 of cgroups writes
    a huge number for "no limit".
    """
    groups = [(_group(folder), CONTROL_GROUP) for folder in group_folders(root, "memory")]
    limits = [(_machine(root), MACHINE), (_address_space(root), ADDRESS_SPACE), *groups]
    known = [AvailableMemory(num_bytes, source) for num_bytes, source in limits if num_bytes is not None]
    return min(known, key=lambda each: each.num_bytes, default=None)


def _machine(root: Path) -> int | None:
    for line in (read_text(root / "proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        number = rest.split()[:1]
        if name == "MemAvailable" and number and number[0].isdecimal():
            return int(number[0]) * KIBIBYTE
    return None


def _address_space(root: Path) -> int | None:
    """What ``ulimit -v`` leaves of the address space."""
    used = (read_text(root / "proc/self/statm") or "").split()[:1]
    for line in (read_text(root / "proc/self/limits") or "").splitlines():
        soft = line.removeprefix("Max address space").split()[:1]
        if line.startswith("Max address space") and used and soft and soft[0].isdecimal():
            left = int(soft[0]) - int(used[0]) * resource.getpagesize()
            return max(0, left - THREADS_ADDRESS_BYTES)
    return None


def _group(folder: Path) -> int | None:
    for limit_name, used_name in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        limit, used = read_text(folder / limit_name), read_text(folder / used_name)
        if limit and used and limit.isdecimal() and used.isdecimal():
            return max(0, int(limit) - int(used) + _reclaimable(folder))
    return None


def _reclaimable(folder: Path) -> int:
    """Page cache of files nobody needs right now: the group's use counts it, but it makes room when asked."""
    for line in (read_text(folder / "memory.stat") or "").splitlines():
        name, _, number = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file") and number.isdecimal():
            return int(number)
    return 0
