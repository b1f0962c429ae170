"""JsonlJournal: a file that grows by JSON objects, one a line, written behind the back of whoever reports."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from ferrum.core.errors import InvalidConfig
from ferrum.core.evidence_config import DEFAULT_JOURNAL_BYTES
from ferrum.evidence.background_writer import BackgroundWriter, Lost

_log = logging.getLogger("ferrum.evidence")

JsonObject = Mapping[str, Any]

JournalEntry = Callable[[], Iterable[JsonObject]]
"""Makes the lines of what happened, on the journal's thread. It holds values only, so it may be late."""


class JsonlJournal:
    """Appends to the file at ``path``, readable by the owner alone; several reporters may share one journal,
    and their lines keep their order.

    A file that would outgrow ``most_bytes`` becomes ``path.1``, in the place of an older one, and a new file
    begins, so that both together take no more than twice that, or than their longest lines.

    Where entries were dropped, a line ``{"phase": "journal.dropped", "num_dropped": N}`` stands in their
    place. An entry that cannot be written as JSON is left out with a warning. Raises InvalidConfig, naming
    ``setting``, when the file cannot be opened.
    """

    def __init__(
        self, path: str, setting: str, capacity: int = 8192, most_bytes: int = DEFAULT_JOURNAL_BYTES
    ) -> None:
        self.path = path
        self._setting = setting
        self._most_bytes = most_bytes
        self._file = _open(path, setting)
        self._num_users = 0
        self._writer: BackgroundWriter[JournalEntry] = BackgroundWriter(
            f"journal {path}", self._write, capacity
        )

    @property
    def num_lost(self) -> int:
        return self._writer.num_lost

    @property
    def problem(self) -> str | None:
        """Why nothing more is written; None while all is well."""
        return self._writer.problem

    def share(self) -> JsonlJournal:
        """For one more who reports and will close it."""
        self._num_users += 1
        return self

    def put(self, entry: JournalEntry) -> None:
        """Never waits for the disk, and never raises."""
        self._writer.put(entry)

    def close(self) -> None:
        """When the last user closes it, everything is in the file, or it was said what is missing."""
        self._num_users -= 1
        if self._num_users <= 0 and self._writer.close() and self._file >= 0:
            file, self._file = self._file, -1
            os.close(file)

    def _write(self, entries: Sequence[JournalEntry | Lost]) -> None:
        for piece in _pieces(b"".join(map(_lines, entries)), self._most_bytes):
            self._make_room(len(piece))
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(self._file, rest) :]

    def _make_room(self, num_bytes: int) -> None:
        """A device or a pipe has no size, and is never put aside."""
        status = os.fstat(self._file)
        if stat.S_ISREG(status.st_mode) and status.st_size and status.st_size + num_bytes > self._most_bytes:
            os.replace(self.path, f"{self.path}.1")
            old, self._file = self._file, _open(self.path, self._setting)
            os.close(old)


def _pieces(lines: bytes, most_bytes: int) -> Iterator[bytes]:
    """``lines`` in pieces of whole ones, each as long as it may be; a longer line is a piece of its own."""
    while len(lines) > most_bytes:
        end = lines.rfind(b"\n", 0, most_bytes) + 1 or lines.index(b"\n") + 1
        yield lines[:end]
        lines = lines[end:]
    yield lines


def _lines(entry: JournalEntry | Lost) -> bytes:
    if isinstance(entry, Lost):
        return _line({"phase": "journal.dropped", "num_dropped": entry.count})
    try:
        return b"".join(map(_line, entry()))
    except Exception:  # One entry must not cost all that follow.
        _log.warning("an entry of the journal cannot be written and is left out", exc_info=True)
        return b""


def _line(content: JsonObject) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)


def _open(path: str, setting: str) -> int:
    try:
        # A pipe without a reader would hold the start for ever.
        if os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode):
            raise InvalidConfig(setting, f"{path} is a pipe; name a file")
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _end_broken_line(file)
    except OSError as error:
        raise InvalidConfig(setting, f"cannot write {path}: {error.strerror}") from None
    return file


def _end_broken_line(file: int) -> None:
    """A process that was killed may have left half a line; the next one begins on its own."""
    status = os.fstat(file)
    is_ended = not stat.S_ISREG(status.st_mode) or not status.st_size
    if not is_ended and os.pread(file, 1, status.st_size - 1) != b"\n":
        os.write(file, b"\n")
