"""How many compute threads to use, and why: min(affinity, cgroup quota, physical cores).

A thread more than the quota allows is stopped by the kernel in the middle of a step, and every other thread
waits for it; two threads on one physical core share its vector units and get in each other's way.
"""

from __future__ import annotations

import math
import os
from collections.abc import Set
from dataclasses import dataclass, replace
from pathlib import Path

from ferrum.assembly.control_groups import group_folders, read_text
from ferrum.core.errors import InvalidConfig

MAX_THREADS = 1024


@dataclass(frozen=True, slots=True)
class CpuLimits:
    """What this process may use. ``quota`` is in CPUs, None = no quota."""

    num_allowed: int
    num_physical: int
    quota: float | None

    @property
    def num_whole(self) -> int:
        """Processors it may keep busy at once."""
        return self.num_allowed if self.quota is None else min(self.num_allowed, math.floor(self.quota))


@dataclass(frozen=True, slots=True)
class ThreadCount:
    """``reason`` completes the sentence "N threads: ...". ``num_spare``: processors that this process may use
    beside them.
    """

    count: int
    reason: str
    num_spare: int = 0


def choose_thread_count(limits: CpuLimits, requested: int | None = None) -> ThreadCount:
    """``requested`` wins when given; otherwise the smallest limit. Raises InvalidConfig for an absurd one."""
    chosen = _choose(limits, requested)
    return replace(chosen, num_spare=max(0, limits.num_whole - chosen.count))


def _choose(limits: CpuLimits, requested: int | None) -> ThreadCount:
    if requested is not None:
        if not 1 <= requested <= MAX_THREADS:
            raise InvalidConfig("threads", f"must be between 1 and {MAX_THREADS}, not {requested}")
        return ThreadCount(requested, "as asked for")
    candidates = [
        ThreadCount(limits.num_physical, "one for each physical core"),
        ThreadCount(limits.num_allowed, "the CPUs this process is allowed to run on"),
    ]
    if limits.quota is not None:
        whole = max(1, math.floor(limits.quota))
        candidates.append(ThreadCount(whole, f"the control group's quota of {limits.quota:g} CPUs"))
    return min(candidates, key=lambda candidate: candidate.count)


def read_cpu_limits(root: Path = Path("/"), allowed: Set[int] | None = None) -> CpuLimits:
    """The limits of this process, from the files below ``root``; ``allowed`` defaults to its affinity.

    Files: cgroups(7), cpuset(7), and the kernel's Documentation/admin-guide/cputopology.rst.
    """
    cpus = allowed if allowed is not None else _affinity()
    return CpuLimits(
        num_allowed=len(cpus), num_physical=_count_physical(root, cpus), quota=_smallest_quota(root)
    )


def _affinity() -> Set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _count_physical(root: Path, cpus: Set[int]) -> int:
    """Distinct cores among ``cpus``; a CPU whose topology the system does not tell counts as one core."""
    cores = set()
    for cpu in cpus:
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        siblings = read_text(folder / "thread_siblings_list")
        cores.add(siblings if siblings else f"cpu {cpu}")
    return len(cores)


def _smallest_quota(root: Path) -> float | None:
    """The tightest quota on the way from this process's control group up to the root."""
    quotas = [_quota(folder) for folder in group_folders(root, "cpu")]
    return min((quota for quota in quotas if quota), default=None)


def _quota(folder: Path) -> float | None:
    """CPUs; version 2 writes one file, version 1 two, and "max" or -1 for no quota."""
    quota, _, period = (read_text(folder / "cpu.max") or "").partition(" ")
    if not quota:
        quota = read_text(folder / "cpu.cfs_quota_us") or ""
        period = read_text(folder / "cpu.cfs_period_us") or ""
    if not quota.isdecimal() or not period.isdecimal() or int(period) == 0:
        return None
    return int(quota) / int(period)
