"""BackgroundWriter: a bounded queue and one thread behind it, so that nobody who reports waits for a disk."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Entry = TypeVar("Entry")
_log = logging.getLogger("ferrum.evidence")

# Entries are gathered for so long, so that many share one write.
GATHER_S = 0.05
# A disk that hangs must not hang the end of the process.
CLOSE_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Lost:
    """Stands in the queue's order where ``count`` entries came and there was no room."""

    count: int


class BackgroundWriter(Generic[Entry]):
    """Takes entries from any thread without waiting, and hands them to ``write`` in order, many at once.

    Holds at most ``capacity`` entries; what comes while it is full is dropped, counted, and told by a Lost at
    the place of the gap. When ``write`` raises, that is logged once, nothing more is written, and everything
    that comes counts as dropped. The thread parks while there is nothing to write.
    """

    def __init__(
        self, name: str, write: Callable[[Sequence[Entry | Lost]], None], capacity: int = 8192
    ) -> None:
        self._name = name
        self._write = write
        self._capacity = capacity
        # Reentrant: the garbage collector may destroy a lease, and that is told, while another entry is put.
        self._lock = threading.RLock()
        self._queue: list[Entry | Lost] = []
        self._gap = 0
        self._num_lost = 0
        self._problem: str | None = None
        self._is_closing = False
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"ferrum-{name}", daemon=True)
        self._thread.start()

    @property
    def num_lost(self) -> int:
        """Entries that were dropped, for want of room or because writing failed."""
        return self._num_lost

    @property
    def problem(self) -> str | None:
        """Why nothing more is written; None while all is well."""
        return self._problem

    def put(self, entry: Entry) -> None:
        """Never waits for the disk, and never raises."""
        with self._lock:
            if self._is_closing or self._problem is not None:
                self._num_lost += 1
                return
            if len(self._queue) >= self._capacity:
                self._num_lost += 1
                self._gap += 1
                return
            self._close_gap()
            self._queue.append(entry)
        if not self._wake.is_set():
            self._wake.set()

    def close(self) -> bool:
        """Writes what is queued, ends the thread and says what is missing. Idempotent.

        False: the thread still hangs in a write, which may come back at any time.
        """
        with self._lock:
            if self._is_closing:
                return not self._thread.is_alive()
            self._close_gap()
            self._is_closing = True
        self._closing.set()
        self._wake.set()
        self._thread.join(CLOSE_LIMIT_S)
        if self._thread.is_alive():
            _log.error("%s: not written within %g s; its end is missing", self._name, CLOSE_LIMIT_S)
        elif self._num_lost:
            _log.warning("%s: %d entries were dropped", self._name, self._num_lost)
        return not self._thread.is_alive()

    def _close_gap(self) -> None:
        if self._gap:
            self._queue.append(Lost(self._gap))
            self._gap = 0

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._closing.wait(GATHER_S)
            self._wake.clear()
            # In this order: what was put before the closing is among what is taken after it.
            is_last = self._closing.is_set()
            self._write_all(self._take())
            if is_last:
                return

    def _take(self) -> list[Entry | Lost]:
        with self._lock:
            taken, self._queue = self._queue, []
        return taken

    def _write_all(self, entries: Sequence[Entry | Lost]) -> None:
        if not entries:
            return
        if self._problem is None:
            try:
                self._write(entries)
                return
            except Exception as error:
                _log.error(
                    "%s: %s; nothing more is written, and nothing else is disturbed", self._name, error
                )
                self._problem = str(error)
        with self._lock:
            self._num_lost += sum(not isinstance(entry, Lost) for entry in entries)
