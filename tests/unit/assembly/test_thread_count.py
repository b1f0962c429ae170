from pathlib import Path

import pytest

from ferrum.assembly.thread_count import CpuLimits, choose_thread_count, read_cpu_limits
from ferrum.core.errors import InvalidConfig


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def topology(siblings: list[str]) -> dict[str, str]:
    name = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    return {name.format(cpu): f"{text}\n" for cpu, text in enumerate(siblings)}


def test_hyperthreads_of_one_core_count_once(tmp_path: Path) -> None:
    root = write(tmp_path, topology(["0,4", "1,5", "0,4", "1,5"]))

    limits = read_cpu_limits(root, allowed={0, 1, 2, 3})

    assert limits == CpuLimits(num_allowed=4, num_physical=2, quota=None)
    assert choose_thread_count(limits).count == 2
    assert "physical core" in choose_thread_count(limits).reason


def test_only_cores_within_the_affinity_count(tmp_path: Path) -> None:
    root = write(tmp_path, topology(["0", "1", "2", "3"]))

    assert read_cpu_limits(root, allowed={1, 3}).num_physical == 2


def test_unknown_topology_counts_every_cpu(tmp_path: Path) -> None:
    assert read_cpu_limits(tmp_path, allowed={0, 1, 2}) == CpuLimits(3, 3, None)


@pytest.mark.parametrize(
    ("limits", "requested", "num_spare"),
    [
        (CpuLimits(2, 2, None), None, 0),
        (CpuLimits(4, 2, None), None, 2),  # The other halves of two cores.
        (CpuLimits(8, 8, 2.5), None, 0),
        (CpuLimits(8, 8, 0.5), None, 0),
        (CpuLimits(8, 8, None), 6, 2),
        (CpuLimits(8, 8, None), 9, 0),
    ],
)
def test_processors_beyond_the_threads_are_spare(
    limits: CpuLimits, requested: int | None, num_spare: int
) -> None:
    assert choose_thread_count(limits, requested).num_spare == num_spare


@pytest.mark.parametrize(
    ("text", "quota"),
    [("max 100000", None), ("250000 100000", 2.5), ("", None), ("x y", None), ("5 0", None)],
)
def test_quota_of_a_version_2_group(tmp_path: Path, text: str, quota: float | None) -> None:
    root = write(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": text + "\n"})

    assert read_cpu_limits(root, allowed={0, 1, 2, 3}).quota == quota


def test_tightest_quota_of_the_ancestors_holds(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/slice/unit\n",
        "sys/fs/cgroup/slice/cpu.max": "150000 100000",
        "sys/fs/cgroup/slice/unit/cpu.max": "max 100000",
    }
    limits = read_cpu_limits(write(tmp_path, files), allowed=set(range(8)))

    assert limits.quota == 1.5
    assert choose_thread_count(limits).count == 1
    assert "1.5 CPUs" in choose_thread_count(limits).reason


def test_quota_of_a_version_1_group_whose_path_is_not_mounted(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "11:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "300000",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
    }
    assert read_cpu_limits(write(tmp_path, files), allowed=set(range(8))).quota == 3


def test_version_1_group_without_quota_says_minus_one(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:cpu:/\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    }
    assert read_cpu_limits(write(tmp_path, files), allowed={0}).quota is None


def test_quota_below_one_cpu_still_gives_a_thread() -> None:
    assert choose_thread_count(CpuLimits(8, 8, 0.4)).count == 1


def test_affinity_smaller_than_the_machine_holds() -> None:
    chosen = choose_thread_count(CpuLimits(num_allowed=1, num_physical=4, quota=None))

    assert chosen.count == 1
    assert "allowed" in chosen.reason


def test_explicit_count_wins_over_every_limit() -> None:
    assert choose_thread_count(CpuLimits(2, 2, 1.0), requested=6).count == 6


@pytest.mark.parametrize("requested", [0, -1, 100_000])
def test_absurd_explicit_count_is_refused(requested: int) -> None:
    with pytest.raises(InvalidConfig, match="threads"):
        choose_thread_count(CpuLimits(2, 2, None), requested)


def test_this_machine_has_at_least_one_of_everything() -> None:
    limits = read_cpu_limits()

    assert limits.num_allowed >= limits.num_physical >= 1
