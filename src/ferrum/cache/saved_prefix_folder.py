"""SavedPrefixFolder: files of saved prefixes under names, no more of them than a number of bytes."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ferrum.core.errors import InvalidConfig, InvalidRequest, ResourceExhausted, UnknownPrefix

_log = logging.getLogger("ferrum.cache")

_SUFFIX: Final = ".ferrum-kv"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

# What a process left behind that was killed while it wrote; a younger one may be at work in another process.
_STALE_PART_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class SavedPrefixFile:
    """``used_at``: when it was written or last restored, in Unix seconds."""

    name: str
    num_bytes: int
    used_at: float


def require_prefix_name(name: str) -> None:
    """Raises InvalidRequest for a name that could not be a file's in any folder."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name[:40]!r} is no name: 1 to 100 letters, digits, '.', '_' and '-', a letter or digit first",
            "name",
        )


class SavedPrefixFolder:
    """The files of one folder; others in it are left alone. When a new one needs room, the least recently
    used go. One thread at a time.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        """Makes the folder if it is not there, for its owner alone. Raises InvalidConfig."""
        self._path = path
        self._most_bytes = most_bytes
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_writable = os.access(path, os.W_OK | os.X_OK)
        except OSError as error:
            raise InvalidConfig("pin_dir", f"cannot use {path}: {error.strerror}") from None
        if not is_writable:
            raise InvalidConfig("pin_dir", f"cannot write into {path}; choose another folder")
        for part in path.glob(f".*{_SUFFIX}.*.part"):
            if time.time() - part.stat().st_mtime > _STALE_PART_S:
                part.unlink(missing_ok=True)

    def files(self) -> tuple[SavedPrefixFile, ...]:
        """The least recently used first."""
        return tuple(sorted(self._files(), key=lambda file: (file.used_at, file.name)))

    def path_for(self, name: str) -> Path:
        """Where a prefix of this name is, or would be. Raises InvalidRequest."""
        require_prefix_name(name)
        return self._path / f"{name}{_SUFFIX}"

    def find(self, name: str) -> Path:
        """Raises InvalidRequest or UnknownPrefix."""
        path = self.path_for(name)
        if not path.is_file():
            raise UnknownPrefix("saved prefix", name, (file.name for file in self._files()))
        return path

    def note_use(self, name: str) -> None:
        os.utime(self.find(name))

    def make_room(self, name: str, num_bytes: int) -> None:
        """Removes others until ``num_bytes`` have room under ``name``, in the place of what is there.

        Raises ResourceExhausted for one that has none in the empty folder.
        """
        if num_bytes > self._most_bytes:
            raise ResourceExhausted(
                "bytes for saved prefixes", num_bytes, self._most_bytes, "raise --pin-dir-size"
            )
        others = [file for file in self.files() if file.name != name]
        num_taken = sum(file.num_bytes for file in others)
        for file in others:
            if num_taken + num_bytes <= self._most_bytes:
                return
            self.path_for(file.name).unlink(missing_ok=True)
            num_taken -= file.num_bytes
            _log.info("the saved prefix %s was removed: %s needs its room", file.name, name)

    def remove(self, name: str) -> None:
        """Raises InvalidRequest or UnknownPrefix."""
        self.find(name).unlink(missing_ok=True)

    def _files(self) -> Iterator[SavedPrefixFile]:
        for path in self._path.glob(f"*{_SUFFIX}"):
            name = path.name.removesuffix(_SUFFIX)
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # Another process shares the folder.
            if path.is_file() and _NAME.fullmatch(name):
                yield SavedPrefixFile(name, status.st_size, status.st_mtime)
