"""Notices that an engine which has work makes no steps. Knows times only, not why."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

# How often it looks, as a part of the time it allows, and in seconds at most.
_LOOKS, _LONGEST_LOOK_S = 8, 1.0

# A look that comes so many seconds late is no accident of scheduling: nothing ran in between.
_LATE_S = 1.0


class StallWatch:
    """Calls ``on_stall`` with the seconds since the last step, once for each stall.

    The engine's thread may be stuck anywhere, in a step or between two, so a thread of this one's own looks.
    It sleeps while there is no work. ``begin`` and ``rest`` are called under the engine's lock, ``note_step``
    by its thread.

    Time in which the whole process was stopped (SIGSTOP, a frozen container, a moved virtual machine) does
    not count: the looking thread was late by as much. ``real_clock`` is what tells how late it is.
    """

    def __init__(
        self,
        stall_after_s: float,
        clock: Callable[[], float],
        on_stall: Callable[[float], None],
        real_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stall_after_s = stall_after_s
        self._look_s = min(stall_after_s / _LOOKS, _LONGEST_LOOK_S)
        self._clock = clock
        self._real_clock = real_clock
        self._on_stall = on_stall
        self._last_look = _Look(real_clock(), 0.0)
        self._working_since: float | None = None
        self._has_work = threading.Event()
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None
        self._was_told = False

    @property
    def seconds_without_step(self) -> float:
        """Since the last step, or since there was work again; 0 while there is nothing to do."""
        since = self._working_since
        return 0.0 if since is None else max(0.0, self._counted_time() - since)

    @property
    def is_stalled(self) -> bool:
        return self._was_told or self.seconds_without_step > self._stall_after_s

    def begin(self) -> None:
        """There is work, or more of it."""
        if self._working_since is None:
            self._last_look = _Look(self._real_clock(), self._last_look.stopped_s)
            self._working_since = self._counted_time()
            self._has_work.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="ferrum-stall-watch", daemon=True)
            self._thread.start()

    def note_step(self) -> None:
        """The engine did something for the requests it has, if it has any."""
        if self._working_since is not None:
            self._working_since = self._counted_time()
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
        while not self._is_over.is_set():
            self._has_work.wait()
            self._look()
            if self.is_stalled and not self._was_told:
                self._was_told = True
                self._on_stall(self.seconds_without_step)
            self._is_over.wait(self._look_s)

    def _look(self) -> None:
        stopped_s = self._stopped_s() if self._working_since is not None else self._last_look.stopped_s
        self._last_look = _Look(self._real_clock(), stopped_s)

    def _counted_time(self) -> float:
        return self._clock() - self._stopped_s()

    def _stopped_s(self) -> float:
        """All the time in which nothing ran, what the next look will find included."""
        last = self._last_look
        late_s = self._real_clock() - last.at - self._look_s
        return last.stopped_s + (late_s if late_s > _LATE_S else 0.0)


@dataclass(frozen=True, slots=True)
class _Look:
    """``at``: when, by the real clock. ``stopped_s``: time found until then in which nothing ran."""

    at: float
    stopped_s: float
