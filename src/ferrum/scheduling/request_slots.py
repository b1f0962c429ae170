"""Places for requests, waiting and running together: the bound that turns overload into QueueFull."""

from __future__ import annotations

import time
from collections.abc import Callable

from ferrum.core.config import SchedulerConfig
from ferrum.core.errors import DuplicateRequest, QueueFull
from ferrum.core.lease import Lease
from ferrum.core.ledger import LifecycleLedger

REQUEST_SLOT = "request_slot"
_SHORTEST_RETRY_S, _LONGEST_RETRY_S = 1.0, 60.0
# Weight of the newest interval between two ends in the running mean.
_NEWEST_WEIGHT = 0.2


class RequestSlots:
    """One lease for each request from the moment it arrives until it ends. Guarded by the caller's lock."""

    def __init__(
        self, config: SchedulerConfig, ledger: LifecycleLedger, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._num_running = config.max_running_requests
        self._num_waiting = config.max_waiting_requests
        self._ledger = ledger
        self._clock = clock
        self._leases: dict[str, Lease] = {}
        self._last_end: float | None = None
        self._mean_interval_s = 0.0

    def __len__(self) -> int:
        return len(self._leases)

    @property
    def retry_after_s(self) -> float:
        """When a place is likely to be free: the mean time between two ends, within 1 and 60 seconds."""
        return min(max(self._mean_interval_s, _SHORTEST_RETRY_S), _LONGEST_RETRY_S)

    def open(self, request_id: str) -> None:
        """Reserves a place.

        Raises DuplicateRequest for an id that has one, QueueFull when every place is taken.
        """
        if request_id in self._leases:
            raise DuplicateRequest(request_id)
        self.require_room()
        self._leases[request_id] = Lease(self._ledger, request_id, REQUEST_SLOT)

    def require_room(self) -> None:
        """Raises QueueFull when every place is taken."""
        if len(self._leases) >= self._num_running + self._num_waiting:
            waiting = len(self._leases) - self._num_running
            raise QueueFull(waiting, self._num_waiting, self.retry_after_s)

    def admit(self, request_id: str) -> None:
        """The request passed every check and waits for its turn."""
        self._leases[request_id].commit()

    def reject(self, request_id: str) -> None:
        """The request never became one that waits; its place is free again."""
        self._leases.pop(request_id).rollback()

    def release(self, request_id: str) -> None:
        """The request ended."""
        self._leases.pop(request_id).release()
        now = self._clock()
        if self._last_end is not None:
            self._mean_interval_s += _NEWEST_WEIGHT * (now - self._last_end - self._mean_interval_s)
        self._last_end = now if self._leases else None
