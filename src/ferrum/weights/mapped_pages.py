"""Gives back the memory of a mapped file's pages after they were read. Knows nothing of formats."""

from __future__ import annotations

import mmap

import numpy as np

from ferrum.core.arrays import ByteArray


def release_pages(data: ByteArray) -> None:
    """Lets go of the pages of a read-only map that ``data`` views; read again, they come from the file again.

    Without it they count as this process's memory until the map is closed, beside what was made of them. Does
    nothing for data that lie in memory of their own.
    """
    mapping = _mapping_of(data)
    if mapping is None or data.size == 0:
        return
    start = _address(data) - _address(np.frombuffer(mapping, np.uint8))
    first_page = start // mmap.PAGESIZE * mmap.PAGESIZE
    mapping.madvise(mmap.MADV_DONTNEED, first_page, start + data.size - first_page)


def _mapping_of(data: ByteArray) -> mmap.mmap | None:
    owner: object = data
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    # A map that may be written to would lose what was written.
    return owner if isinstance(owner, mmap.mmap) and memoryview(owner).readonly else None


def _address(data: ByteArray) -> int:
    return int(data.__array_interface__["data"][0])
