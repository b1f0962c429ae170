import resource
from pathlib import Path

import pytest

from ferrum.assembly.memory_available import read_available_memory


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MACHINE = {"proc/meminfo": "MemTotal:       100000 kB\nMemAvailable:      1000 kB\n"}
GROUP = "sys/fs/cgroup/"


def test_machine_says_what_is_available(tmp_path: Path) -> None:
    assert read_available_memory(write(tmp_path, MACHINE)) == 1000 * 1024


def test_nothing_known_is_none(tmp_path: Path) -> None:
    assert read_available_memory(tmp_path) is None


@pytest.mark.parametrize(
    ("limit", "expected"), [("max", 1_024_000), ("800000", 500_000), ("5000000", 1_024_000), ("100000", 0)]
)
def test_version_2_group_may_allow_less(tmp_path: Path, limit: str, expected: int) -> None:
    files = {
        **MACHINE,
        "proc/self/cgroup": "0::/\n",
        f"{GROUP}memory.max": limit,
        f"{GROUP}memory.current": "300000",
    }
    assert read_available_memory(write(tmp_path, files)) == expected


def test_file_cache_that_nobody_needs_counts_as_room(tmp_path: Path) -> None:
    files = {
        **MACHINE,
        "proc/self/cgroup": "0::/box\n",
        f"{GROUP}box/memory.max": "800000",
        f"{GROUP}box/memory.current": "700000",
        f"{GROUP}box/memory.stat": "anon 200000\ninactive_file 500000\n",
    }
    assert read_available_memory(write(tmp_path, files)) == 600_000


def test_version_1_group_may_allow_less(tmp_path: Path) -> None:
    files = {
        **MACHINE,
        "proc/self/cgroup": "7:memory:/box\n",
        f"{GROUP}memory/memory.limit_in_bytes": str(2**63 - 4096),
        f"{GROUP}memory/memory.usage_in_bytes": "5",
        f"{GROUP}memory/box/memory.limit_in_bytes": "500000",
        f"{GROUP}memory/box/memory.usage_in_bytes": "100000",
    }
    assert read_available_memory(write(tmp_path, files)) == 400_000


@pytest.mark.parametrize(
    ("soft", "expected"), [("unlimited", 1_024_000), ("900000", 900_000 - 10 * resource.getpagesize())]
)
def test_limit_of_the_address_space_may_allow_less(tmp_path: Path, soft: str, expected: int) -> None:
    files = {
        **MACHINE,
        "proc/self/limits": f"Limit  Soft Limit  Hard Limit  Units\nMax address space  {soft}  unlimited\n",
        "proc/self/statm": "10 5 1 1 0 1 0",
    }
    assert read_available_memory(write(tmp_path, files)) == expected


def test_this_machine_has_memory_left() -> None:
    available = read_available_memory()

    assert available is None or available > 2**20
