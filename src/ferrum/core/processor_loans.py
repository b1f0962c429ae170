"""Processors that the compute threads leave to other work of this process for a while.

Where there is a compute thread for every processor, whatever else computes for some milliseconds displaces
one, and all others wait for it: for a whole tick of the system, two steps of a small model. Lent a processor,
the same work displaces nobody, and a step takes 1.2 to 1.9 times as long while the work lasts. No result
depends on the number of threads.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager, suppress

LONGEST_STEP_S = 0.008
"""A step that takes longer would lose more by a loan than by being displaced for a tick."""

LONGEST_LOAN_S = 5.0
"""Work that takes longer goes on without its loan: it must not cost everybody else for ever."""

# Work waits for the end of a running step that has all processors, but not for long.
_PATIENCE_S = 0.01


class ProcessorLoans:
    """Any thread borrows, one runs the steps and lends.

    ``num_lendable``: how many processors a step may do without; 0 where other work has one of its own.
    ``places``: the processors where the compute threads last ran, negative where it is not known; a step that
    lends does without the last ones.
    """

    def __init__(
        self,
        num_lendable: int = 0,
        places: Callable[[], list[int]] = list,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._num_lendable = num_lendable
        self._places = places
        self._clock = clock
        self._step_ended = threading.Condition()
        self._loan_ends: list[float] = []
        self._are_all_in_use = False
        self._messengers: set[int] = set()
        self._homes: dict[int, Set[int]] = {}  # of messengers that were sent away, their processors

    @property
    def num_wanted(self) -> int:
        """How many processors the next step should do without, if it is short."""
        ends = tuple(self._loan_ends)
        return self._num_lendable if ends and max(ends) > self._clock() else 0

    def add_messenger(self, thread_id: int) -> None:
        """A thread that hands out what steps make. When a loan begins it is sent to compute threads, which
        let it in as soon as it wakes: where a borrower runs, the system makes it wait for the next tick.
        """
        if self._num_lendable:
            self._messengers.add(thread_id)

    def messenger_came(self) -> None:
        """On its thread: it has woken. It may run everywhere again, and mostly stays where it is."""
        if self._homes:
            with self._step_ended:
                self._send_home(threading.get_native_id())

    @contextmanager
    def borrowed(self) -> Iterator[None]:
        """For work that keeps a processor busy for milliseconds: that of the calling thread, and of processes
        which take over its affinity. It begins when no step runs that has all processors, or after 10 ms.
        """
        if not self._num_lendable:
            yield
            return
        end = self._clock() + LONGEST_LOAN_S
        home: Set[int] = frozenset()
        self._loan_ends.append(end)
        try:
            with self._step_ended:
                self._step_ended.wait_for(lambda: not self._are_all_in_use, _PATIENCE_S)
                home = self._keep_apart()
            yield
        finally:
            _move(threading.get_native_id(), home)
            with self._step_ended:
                self._loan_ends.remove(end)
                for thread_id in () if self._loan_ends else tuple(self._homes):
                    self._send_home(thread_id)

    def begin_step(self, num_lent: int) -> None:
        """The next step does without ``num_lent`` processors."""
        self._are_all_in_use = num_lent == 0

    def end_step(self) -> None:
        self._are_all_in_use = False
        if self._loan_ends:  # A lock less between most steps.
            with self._step_ended:
                self._step_ended.notify_all()

    def _keep_apart(self) -> Set[int]:
        """The calling thread to where no step computes, messengers to where steps do. Where it could run.

        Left to the system, a borrower may wake where a compute thread runs, and the lent processor stays idle
        for the 7 ms that it takes to see it.
        """
        in_use = frozenset(place for place in self._places()[: -self._num_lendable] if place >= 0)
        own_id = threading.get_native_id()
        home = _allowed(own_id)
        lent = home - in_use
        if in_use and lent:
            _move(own_id, lent)
            for thread_id in self._messengers - self._homes.keys():
                self._homes[thread_id] = _allowed(thread_id)
                _move(thread_id, in_use)
        return home

    def _send_home(self, thread_id: int) -> None:
        _move(thread_id, self._homes.pop(thread_id, frozenset()))


def _allowed(thread_id: int) -> Set[int]:
    """The processors where a thread may run; none, if the system does not tell or the thread is gone."""
    if hasattr(os, "sched_getaffinity"):
        with suppress(OSError):
            return os.sched_getaffinity(thread_id)
    return frozenset()


def _move(thread_id: int, processors: Set[int]) -> None:
    """Nothing happens where there are none, the thread is gone, or the system does not let us."""
    if processors and hasattr(os, "sched_setaffinity"):
        with suppress(OSError):
            os.sched_setaffinity(thread_id, processors)
