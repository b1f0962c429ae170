"""Which commit the running code comes from, so that a measurement can name it."""

from __future__ import annotations

import subprocess
from pathlib import Path


def source_commit() -> str | None:
    """The commit of the checkout this package lies in, with "-dirty" if files changed; None outside one."""
    folder = Path(__file__).parent
    try:
        tracked = _git(folder, "ls-files", Path(__file__).name)
        return _git(folder, "describe", "--always", "--dirty", "--abbrev=12") if tracked else None
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()
