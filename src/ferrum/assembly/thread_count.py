"""How many compute threads to use, and why: min(affinity, cgroup quota, physical cores).

A thread more than the quota allows is stopped by the kernel in the middle of a step, and every other thread
waits for it; two threads on one physical core share its vector units and get in each other's way.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Set
from dataclasses import dataclass
from pathlib import Path

from ferrum.core.errors import InvalidConfig

MAX_THREADS = 1024


@dataclass(frozen=True, slots=True)
class CpuLimits:
    """What this process may use. ``quota`` is in CPUs, None = no quota."""

    num_allowed: int
    num_physical: int
    quota: float | None


@dataclass(frozen=True, slots=True)
class ThreadCount:
    """``reason`` completes the sentence "N threads: ..."."""

    count: int
    reason: str


def choose_thread_count(limits: CpuLimits, requested: int | None = None) -> ThreadCount:
    """``requested`` wins when given; otherwise the smallest limit. Raises InvalidConfig for an absurd one."""
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
        siblings = _read(folder / "thread_siblings_list")
        cores.add(siblings if siblings else f"cpu {cpu}")
    return len(cores)


def _smallest_quota(root: Path) -> float | None:
    """The tightest quota on the way from this process's control group up to the root."""
    quotas = [
        quota for folder, read in _groups(root) for quota in [read(folder)] if quota is not None and quota > 0
    ]
    return min(quotas, default=None)


def _groups(root: Path) -> list[tuple[Path, Callable[[Path], float | None]]]:
    mount = root / "sys/fs/cgroup"
    groups: list[tuple[Path, Callable[[Path], float | None]]] = []
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            groups += [(folder, _quota_v2) for folder in _upwards(mount, path)]
        elif "cpu" in controllers.split(","):
            for name in (controllers, "cpu"):
                groups += [(folder, _quota_v1) for folder in _upwards(mount / name, path)]
    return groups


def _upwards(mount: Path, path: str) -> list[Path]:
    """The group's folder and its ancestors.

    In a container the path may lead out of what is mounted; the mount itself is then the group.
    """
    group = mount / path.lstrip("/")
    return [mount, *(folder for folder in (group, *group.parents) if mount in folder.parents)]


def _quota_v2(folder: Path) -> float | None:
    quota, _, period = (_read(folder / "cpu.max") or "").partition(" ")
    return _ratio(quota, period)


def _quota_v1(folder: Path) -> float | None:
    return _ratio(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _ratio(quota: str | None, period: str | None) -> float | None:
    if not quota or not period or not quota.isdecimal() or not period.isdecimal() or int(period) == 0:
        return None
    return int(quota) / int(period)


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
