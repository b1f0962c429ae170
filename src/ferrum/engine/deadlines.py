"""Which active requests must have ended by when. Knows times only: the step loop ends the requests."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count

from ferrum.engine.active_request import ActiveRequest

# A request that ends early stays in the heap until its time, unless this many more are there than alive.
_MOST_STALE = 64


class Deadlines:
    """Mutated under the engine's lock only. Looking costs nothing while nobody's time has come."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, ActiveRequest]] = []
        self._alive: set[ActiveRequest] = set()
        self._order = count()

    def __len__(self) -> int:
        """How many requests are watched."""
        return len(self._alive)

    def add(self, request: ActiveRequest) -> None:
        """From now on the request is watched, if it has a deadline."""
        if request.deadline is not None:
            self._alive.add(request)
            heappush(self._heap, (request.deadline, next(self._order), request))

    def discard(self, request: ActiveRequest) -> None:
        """The request has ended."""
        self._alive.discard(request)
        if len(self._heap) > 2 * len(self._alive) + _MOST_STALE:
            self._heap = [entry for entry in self._heap if entry[2] in self._alive]
            heapify(self._heap)

    def take_expired(self, now: float) -> list[ActiveRequest]:
        """Those whose time has come, the most overdue first; each is told once."""
        expired = []
        while self._heap and self._heap[0][0] <= now:
            request = heappop(self._heap)[2]
            if request in self._alive:
                self._alive.discard(request)
                expired.append(request)
        return expired
