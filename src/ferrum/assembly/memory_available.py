"""How many bytes this process may still take: what the machine has, or less if a control group says so."""

from __future__ import annotations

import resource
from pathlib import Path

from ferrum.assembly.control_groups import group_folders, read_text

KIBIBYTE = 1024


def read_available_memory(root: Path = Path("/")) -> int | None:
    """Bytes, from the files below ``root``; None where the system does not tell.

    Files: proc_meminfo(5), proc_pid_limits(5), proc_pid_statm(5) and cgroups(7); version 1 of cgroups writes
    a huge number for "no limit".
    """
    groups = [_group(folder) for folder in group_folders(root, "memory")]
    known = [_machine(root), _address_space(root), *groups]
    return min((each for each in known if each is not None), default=None)


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
            return max(0, int(soft[0]) - int(used[0]) * resource.getpagesize())
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
