"""Notices that an engine which has work makes no steps. Knows times only, not why."""

from __future__ import annotations

import threading
from collections.abc import Callable

# How often it looks, as a part of the time it allows, and in seconds at most.
_LOOKS, _LONGEST_LOOK_S = 8, 1.0


class StallWatch:
    """Calls ``on_stall`` with the seconds since the last step, once for each stall.

    The engine's thread may be stuck anywhere, in a step or between two, so a thread of this one's own looks.
    It sleeps while there is no work. ``begin`` and ``rest`` are called under the engine's lock, ``note_step``
    by its thread.
    """

    def __init__(
        self, stall_after_s: float, clock: Callable[[], float], on_stall: Callable[[float], None]
    ) -> None:
        self._stall_after_s = stall_after_s
        self._clock = clock
        self._on_stall = on_stall
        self._working_since: float | None = None
        self._has_work = threading.Event()
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None
        self._was_told = False

    @property
    def seconds_without_step(self) -> float:
        """Since the last step, or since there was work again; 0 while there is nothing to do."""
        since = self._working_since
        return 0.0 if since is None else self._clock() - since

    @property
    def is_stalled(self) -> bool:
        return self.seconds_without_step > self._stall_after_s

    def begin(self) -> None:
        """There is work, or more of it."""
        if self._working_since is None:
            self._working_since = self._clock()
            self._has_work.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="ferrum-stall-watch", daemon=True)
            self._thread.start()

    def note_step(self) -> None:
        """The engine did something for the requests it has, if it has any."""
        if self._working_since is not None:
            self._working_since = self._clock()
        self._was_told = False

    def rest(self) -> None:
        """There is nothing to do."""
        self._has_work.clear()
        self._working_since = None
        self._was_told = False

    def close(self) -> None:
        """Nobody looks from now on; ``seconds_without_step`` stays true."""
        self._is_over.set()
        self._has_work.set()
        # Its thread refers to the engine; a watch that is just telling of a stall is not waited for.
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(0.1)

    def _watch(self) -> None:
        look_s = min(self._stall_after_s / _LOOKS, _LONGEST_LOOK_S)
        while not self._is_over.is_set():
            self._has_work.wait()
            if self.is_stalled and not self._was_told:
                self._was_told = True
                self._on_stall(self.seconds_without_step)
            self._is_over.wait(look_s)
