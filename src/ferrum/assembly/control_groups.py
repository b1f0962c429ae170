"""Where this process's control groups lie, whichever version the system has: cgroups(7)."""

from __future__ import annotations

from pathlib import Path


def group_folders(root: Path, controller: str) -> list[Path]:
    """The folders that may limit this process through ``controller``, the group's own and its ancestors'."""
    mount = root / "sys/fs/cgroup"
    folders: list[Path] = []
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            folders += _upwards(mount, path)
        elif controller in controllers.split(","):
            for name in dict.fromkeys((controllers, controller)):
                folders += _upwards(mount / name, path)
    return folders


def _upwards(mount: Path, path: str) -> list[Path]:
    """The group's folder and its ancestors.

    In a container the path may lead out of what is mounted; the mount itself is then the group.
    """
    group = mount / path.lstrip("/")
    return [mount, *(folder for folder in (group, *group.parents) if mount in folder.parents)]


def read_text(path: Path) -> str | None:
    """The file's text without white space around it; None if it cannot be read."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
