import resource
from pathlib import Path

import pytest

from ferrum.assembly.memory_available import (
    ADDRESS_SPACE,
    CONTROL_GROUP,
    MACHINE,
    THREADS_ADDRESS_BYTES,
    AvailableMemory,
    read_available_memory,
)
from ferrum.assembly.memory_budget import MemoryBudget, choose_budget
from ferrum.core.config import EngineConfig
from ferrum.core.errors import ResourceExhausted


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MACHINE_FILES = {"proc/meminfo": "MemTotal:       100000 kB\nMemAvailable:      1000 kB\n"}
GROUP = "sys/fs/cgroup/"


def available_bytes(root: Path) -> int:
    available = read_available_memory(root)
    assert available is not None
    return available.num_bytes


def test_machine_says_what_is_available(tmp_path: Path) -> None:
    written = write(tmp_path, MACHINE_FILES)
    assert read_available_memory(written) == AvailableMemory(1000 * 1024, MACHINE)


def test_nothing_known_is_none(tmp_path: Path) -> None:
    assert read_available_memory(tmp_path) is None


@pytest.mark.parametrize(
    ("limit", "expected"), [("max", 1_024_000), ("800000", 500_000), ("5000000", 1_024_000), ("100000", 0)]
)
def test_version_2_group_may_allow_less(tmp_path: Path, limit: str, expected: int) -> None:
    files = {
        **MACHINE_FILES,
        "proc/self/cgroup": "0::/\n",
        f"{GROUP}memory.max": limit,
        f"{GROUP}memory.current": "300000",
    }
    assert available_bytes(write(tmp_path, files)) == expected


def test_file_cache_that_nobody_needs_counts_as_room(tmp_path: Path) -> None:
    files = {
        **MACHINE_FILES,
        "proc/self/cgroup": "0::/box\n",
        f"{GROUP}box/memory.max": "800000",
        f"{GROUP}box/memory.current": "700000",
        f"{GROUP}box/memory.stat": "anon 200000\ninactive_file 500000\n",
    }
    assert available_bytes(write(tmp_path, files)) == 600_000


def test_version_1_group_may_allow_less(tmp_path: Path) -> None:
    files = {
        **MACHINE_FILES,
        "proc/self/cgroup": "7:memory:/box\n",
        f"{GROUP}memory/memory.limit_in_bytes": str(2**63 - 4096),
        f"{GROUP}memory/memory.usage_in_bytes": "5",
        f"{GROUP}memory/box/memory.limit_in_bytes": "500000",
        f"{GROUP}memory/box/memory.usage_in_bytes": "100000",
    }
    assert available_bytes(write(tmp_path, files)) == 400_000


@pytest.mark.parametrize(
    ("soft", "expected"),
    [
        ("unlimited", 1_024_000),
        (f"{THREADS_ADDRESS_BYTES + 900_000}", 900_000 - 10 * resource.getpagesize()),
        ("900000", 0),
    ],
)
def test_limit_of_the_address_space_may_allow_less(tmp_path: Path, soft: str, expected: int) -> None:
    files = {
        **MACHINE_FILES,
        "proc/self/limits": f"Limit  Soft Limit  Hard Limit  Units\nMax address space  {soft}  unlimited\n",
        "proc/self/statm": "10 5 1 1 0 1 0",
    }
    assert available_bytes(write(tmp_path, files)) == expected


def test_this_machine_has_memory_left() -> None:
    available = read_available_memory()

    assert available is None or available.num_bytes > 2**20


def test_the_tightest_limit_is_named(tmp_path: Path) -> None:
    group = {"proc/self/cgroup": "0::/\n", f"{GROUP}memory.max": "800000", f"{GROUP}memory.current": "300000"}
    grouped = read_available_memory(write(tmp_path, {**MACHINE_FILES, **group}))
    assert grouped == AvailableMemory(500_000, CONTROL_GROUP)
    space = {
        "proc/self/limits": f"Max address space  {THREADS_ADDRESS_BYTES + 400_000}  unlimited  bytes\n",
        "proc/self/statm": "0 5 1 1 0 1 0",
    }
    assert read_available_memory(write(tmp_path, space)) == AvailableMemory(400_000, ADDRESS_SPACE)


def test_a_share_of_what_is_available_is_the_budget() -> None:
    config = EngineConfig(memory_utilization=0.5)
    budget = choose_budget(config, AvailableMemory(1000, CONTROL_GROUP))
    assert budget == MemoryBudget(
        500, "50% of what the control group leaves", "raise the control group's limit", False, share=0.5
    )
    assert choose_budget(config, None) is None


def test_an_explicit_bound_is_the_budget_if_there_is_so_much() -> None:
    config = EngineConfig(memory_bytes=1000)
    bound = MemoryBudget(1000, "--memory", "raise --memory", is_explicit=True)
    assert choose_budget(config, AvailableMemory(1000, MACHINE)) == bound
    assert choose_budget(config, None) == bound
    with pytest.raises(ResourceExhausted, match="what the machine leaves; lower --memory") as refused:
        choose_budget(config, AvailableMemory(999, MACHINE))
    assert (refused.value.needed, refused.value.available) == (1000, 999)
