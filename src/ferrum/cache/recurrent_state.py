"""Slots for the state that a recurrent layer keeps of a sequence, whatever its length. Knows no model.

A transformer's keys and values grow with the tokens and live in blocks; a recurrent layer's state has one
size, so a sequence takes one slot when it is admitted and gives it back when it stops running.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from ferrum.core.errors import AlreadyExists, InternalError, ResourceExhausted
from ferrum.core.lease import Lease
from ferrum.core.ledger import LifecycleLedger

RECURRENT_STATE_SLOT = "recurrent_state_slot"
SETTING = "recurrent_state_max_slots"


@dataclass(frozen=True, slots=True)
class RecurrentStateStats:
    """How full the slots are. ``total_slots`` None: no limit. ``num_failures`` counts refused allocations."""

    total_slots: int | None
    used_slots: int
    used_bytes: int
    num_failures: int


class RecurrentStateHandle:
    """The right of ``owner`` to use state slot ``slot``; worth nothing once the slot was given back."""

    __slots__ = ("_is_valid", "_lease", "num_bytes", "owner", "slot")

    def __init__(self, lease: Lease, slot: int, num_bytes: int) -> None:
        self._lease = lease
        self._is_valid = True
        self.owner = lease.owner
        self.slot = slot
        self.num_bytes = num_bytes

    @property
    def is_valid(self) -> bool:
        return self._is_valid

    def _end(self) -> None:
        self._is_valid = False
        self._lease.consume()


class RecurrentStateManager:
    """At most ``max_slots`` states of at most ``max_bytes`` together; None = no limit.

    Mutated by the engine's thread only. Hands out the lowest free slot, so that a run's slots are a function
    of its requests.
    """

    def __init__(
        self, ledger: LifecycleLedger, max_slots: int | None = None, max_bytes: int | None = None
    ) -> None:
        assert max_slots is None or max_slots >= 1, f"at least one slot, not {max_slots}"
        self.ledger = ledger
        self.max_slots = max_slots
        self._max_bytes = max_bytes
        self._handles: dict[str, RecurrentStateHandle] = {}
        self._returned: list[int] = []  # heap of slots below _next_slot
        self._next_slot = 0
        self._used_bytes = 0
        self._num_failures = 0

    @property
    def stats(self) -> RecurrentStateStats:
        return RecurrentStateStats(self.max_slots, len(self._handles), self._used_bytes, self._num_failures)

    def has_room(self, num_bytes: int) -> bool:
        """Whether one more state of this size can be had."""
        return self._missing(num_bytes) is None

    def allocate(self, owner: str, num_bytes: int) -> RecurrentStateHandle:
        """A slot for a state of ``num_bytes`` (at least 1).

        Raises AlreadyExists when ``owner`` has one, ResourceExhausted when slots or bytes ran out; nothing is
        taken then.
        """
        assert num_bytes >= 1, f"a state has at least one byte, not {num_bytes}"
        if owner in self._handles:
            raise AlreadyExists("recurrent state", owner)
        missing = self._missing(num_bytes)
        if missing is not None:
            self._num_failures += 1
            raise missing
        lease = Lease(self.ledger, owner, RECURRENT_STATE_SLOT)
        lease.commit()
        handle = RecurrentStateHandle(lease, self._take_slot(), num_bytes)
        self._handles[owner] = handle
        self._used_bytes += num_bytes
        return handle

    def handle(self, owner: str) -> RecurrentStateHandle:
        """The owner's handle. Raises InternalError when it has none: nobody may compute without its state."""
        if owner not in self._handles:
            raise InternalError(f"{owner} is to be computed and has no recurrent state")
        return self._handles[owner]

    def release(self, owner: str) -> bool:
        """Gives the owner's slot back and ends its handle; False, and nothing happens, when it has none."""
        handle = self._handles.pop(owner, None)
        if handle is None:
            return False
        handle._end()
        heapq.heappush(self._returned, handle.slot)
        self._used_bytes -= handle.num_bytes
        return True

    def _missing(self, num_bytes: int) -> ResourceExhausted | None:
        """What stands in the way of one more state."""
        if self.max_slots is not None and len(self._handles) >= self.max_slots:
            return ResourceExhausted("recurrent state slots", 1, 0, f"raise {SETTING} or run fewer requests")
        if self._max_bytes is not None and self._used_bytes + num_bytes > self._max_bytes:
            free = self._max_bytes - self._used_bytes
            return ResourceExhausted("recurrent state (bytes)", num_bytes, free, "run fewer requests")
        return None

    def _take_slot(self) -> int:
        if self._returned:
            return heapq.heappop(self._returned)
        self._next_slot += 1
        return self._next_slot - 1
