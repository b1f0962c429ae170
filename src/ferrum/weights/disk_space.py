"""Free space on a disk: asked before writing, recognised when it ran out all the same."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

from ferrum.core.errors import DownloadFailed

FreeBytes = Callable[[Path], int]
# A file-size limit (EFBIG) and a quota (EDQUOT) are, to the person, a full disk.
FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def free_disk_bytes(folder: Path) -> int:
    """Bytes that may still be written under ``folder``, which exists."""
    return shutil.disk_usage(folder).free


def is_disk_full(error: OSError) -> bool:
    return error.errno in FULL_DISK


def require_space(source: str, folder: Path, needed_bytes: int, free_bytes: FreeBytes) -> None:
    """Raises DownloadFailed with both numbers when ``needed_bytes`` will not fit under ``folder``."""
    free = free_bytes(folder)
    if needed_bytes > free:
        raise DownloadFailed(
            source,
            f"it needs {needed_bytes / 1e6:.0f} MB and {free / 1e6:.0f} MB are free; "
            "free some or set FERRUM_HOME to another disk",
        )
