"""A lease: a right to some units of a resource that must be handed back in so many words."""

from __future__ import annotations

import warnings
from enum import Enum

from ferrum.core.ledger import LifecycleLedger


class LeaseState(Enum):
    RESERVED = "reserved"
    COMMITTED = "committed"
    RELEASED = "released"
    ROLLED_BACK = "rolled back"


class Lease:
    """``amount`` units of ``resource`` held by ``owner``, counted in the ledger.

    Life: reserved (when built), then either rolled back, or committed and later released. Any other order is
    a bug of ours. A lease destroyed while it still holds something is counted in the ledger and warned about
    (ResourceWarning); what it held stays outstanding, so the leak shows.
    """

    __slots__ = ("_ledger", "_state", "amount", "owner", "resource")

    def __init__(self, ledger: LifecycleLedger, owner: str, resource: str, amount: int = 1) -> None:
        ledger.reserve(owner, resource, amount)
        self._ledger = ledger
        self._state = LeaseState.RESERVED
        self.owner = owner
        self.resource = resource
        self.amount = amount

    @property
    def state(self) -> LeaseState:
        return self._state

    def commit(self) -> None:
        self._move(LeaseState.RESERVED, LeaseState.COMMITTED)
        self._ledger.commit(self.owner, self.resource, self.amount)

    def release(self) -> None:
        self._move(LeaseState.COMMITTED, LeaseState.RELEASED)
        self._ledger.release(self.owner, self.resource, self.amount)

    def rollback(self) -> None:
        self._move(LeaseState.RESERVED, LeaseState.ROLLED_BACK)
        self._ledger.rollback(self.owner, self.resource, self.amount)

    def consume(self) -> None:
        """Gives everything back from either live state, for a path that ends a request anywhere."""
        if self._state is LeaseState.RESERVED:
            self.rollback()
        else:
            self.release()

    def _move(self, expected: LeaseState, to: LeaseState) -> None:
        assert self._state is expected, (
            f"{self.resource} of {self.owner}: {self._state.value}, cannot be {to.value}"
        )
        self._state = to

    def __del__(self) -> None:
        # A constructor that failed leaves no state behind.
        if getattr(self, "_state", LeaseState.RELEASED) in (LeaseState.RESERVED, LeaseState.COMMITTED):
            self._ledger.record_dropped_lease(self.owner, self.resource, self.amount)
            warnings.warn(
                f"{self.owner} dropped a lease of {self.amount} {self.resource} while {self._state.value}",
                ResourceWarning,
                stacklevel=2,
            )
