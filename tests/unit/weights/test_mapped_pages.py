"""Pages of a mapped file that were read go back to the system; nothing else is ever touched."""

import mmap
from pathlib import Path

import numpy as np
import pytest

from ferrum.core.arrays import ByteArray
from ferrum.weights.file_digest import content_digest
from ferrum.weights.mapped_pages import release_pages

NUM_BYTES = 24 << 20


def resident_bytes(path: Path) -> int:
    """What of the maps of ``path`` counts as this process's memory."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    at = [index for index, line in enumerate(lines) if line.endswith(str(path))]
    found = [next(line for line in lines[index:] if line.startswith("Rss:")) for index in at]
    return sum(int(line.split()[1]) * 1024 for line in found)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.write_bytes(np.random.default_rng(0).bytes(NUM_BYTES))
    return path


@pytest.fixture
def mapped(path: Path) -> ByteArray:
    with open(path, "rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def test_released_pages_are_no_longer_resident_and_can_be_read_again(path: Path, mapped: ByteArray) -> None:
    total = int(mapped.sum())
    assert resident_bytes(path) == NUM_BYTES
    release_pages(mapped)
    assert resident_bytes(path) == 0
    assert int(mapped.sum()) == total


def test_only_the_pages_of_the_data_are_released(path: Path, mapped: ByteArray) -> None:
    mapped.sum()
    release_pages(mapped[1000:][: 8 << 20])
    # The system may map a file in pages of 2 MiB and lets go of one whole when a part of it is released.
    left = NUM_BYTES - (8 << 20)
    assert left - 2 * (2 << 20) <= resident_bytes(path) <= left + 2 * mmap.PAGESIZE


def test_data_outside_a_read_only_map_stay_as_they_are(path: Path) -> None:
    in_memory = np.frombuffer(path.read_bytes(), np.uint8)
    written = mmap.mmap(-1, 1 << 20)
    anonymous = np.frombuffer(written, np.uint8)
    anonymous[:] = 7
    copy = in_memory.copy()
    for data in (in_memory, copy, anonymous, np.zeros(0, np.uint8)):
        release_pages(data[:])
    assert (copy == in_memory).all()
    assert in_memory.tobytes() == path.read_bytes()
    assert (anonymous == 7).all()


def test_hashing_a_file_leaves_none_of_it_resident(path: Path, mapped: ByteArray) -> None:
    content_digest(mapped)
    assert resident_bytes(path) == 0
