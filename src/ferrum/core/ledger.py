"""The lifecycle ledger: what every owner reserved, committed and gave back, counted always.

It knows names and amounts only, never what a resource is.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from ferrum.core.ledger_entries import LeaseDropped, LedgerWatch, OwnerClosed, ResourceAction, ResourceMoved
from ferrum.core.owner_summary import OwnerSummary, ResourceCounts

_COUNTED_AS = {
    ResourceAction.RESERVE: "reserved",
    ResourceAction.COMMIT: "committed",
    ResourceAction.RELEASE: "released",
    ResourceAction.ROLLBACK: "rolled_back",
}


class _Account:
    """Running numbers of one (owner, resource)."""

    __slots__ = ("committed", "released", "reserved", "resource", "rolled_back", "underflow")

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self.reserved = self.committed = self.released = self.rolled_back = self.underflow = 0

    def counts(self) -> ResourceCounts:
        return ResourceCounts(
            self.resource, self.reserved, self.committed, self.released, self.rolled_back, self.underflow
        )

    def note_underflow(self) -> int:
        missing = self.released + self.rolled_back - max(self.reserved, self.committed) - self.underflow
        self.underflow += max(0, missing)
        return max(0, missing)


class LifecycleLedger:
    """Counts reserve, commit, release and rollback per owner and resource. Any thread may call it.

    A return of more than was taken is an underflow: it is counted, reported by the call, and never hides an
    outstanding unit of another resource. Somebody may watch; while nobody does, nothing is told.
    """

    def __init__(self) -> None:
        # Reentrant: a lease that the garbage collector destroys may come while another one is counted.
        self._lock = threading.RLock()
        self._watch: LedgerWatch | None = None
        self._accounts: dict[str, dict[str, _Account]] = {}
        self._num_underflows = 0
        self._num_dropped_leases = 0

    def watch(self, watch: LedgerWatch) -> None:
        """From now on ``watch`` hears every movement, in order and under the ledger's lock: must be quick."""
        self._watch = watch

    def reserve(self, owner: str, resource: str, amount: int = 1) -> None:
        """Takes ``amount`` units (at least 1) for ``owner``, to be committed or rolled back."""
        with self._lock:
            account = self._account(owner, resource, amount)
            account.reserved += amount
            self._tell(ResourceAction.RESERVE, owner, account, amount)

    def commit(self, owner: str, resource: str, amount: int = 1) -> None:
        """Confirms ``amount`` reserved units: from now on they are released, not rolled back."""
        with self._lock:
            account = self._account(owner, resource, amount)
            account.committed += amount
            self._tell(ResourceAction.COMMIT, owner, account, amount)

    def release(self, owner: str, resource: str, amount: int = 1) -> int:
        """Returns ``amount`` committed units; the answer is the underflow, 0 when all is right."""
        with self._lock:
            account = self._account(owner, resource, amount)
            account.released += amount
            underflow = self._check_underflow(account)
            self._tell(ResourceAction.RELEASE, owner, account, amount, underflow)
            return underflow

    def rollback(self, owner: str, resource: str, amount: int = 1) -> int:
        """Returns ``amount`` reserved units that were never committed; the answer is the underflow."""
        with self._lock:
            account = self._account(owner, resource, amount)
            account.rolled_back += amount
            underflow = self._check_underflow(account)
            self._tell(ResourceAction.ROLLBACK, owner, account, amount, underflow)
            return underflow

    def record_dropped_lease(self, owner: str, resource: str, amount: int) -> None:
        """Notes that a lease was destroyed without being consumed."""
        with self._lock:
            self._num_dropped_leases += 1
            if self._watch is not None:
                self._watch(LeaseDropped(owner, resource, amount))

    def close(self, owner: str) -> OwnerSummary:
        """Forgets ``owner`` and says what it held; an unknown owner held nothing."""
        with self._lock:
            accounts = self._accounts.pop(owner, {})
            summary = OwnerSummary(owner, tuple(accounts[name].counts() for name in sorted(accounts)))
            if self._watch is not None:
                self._watch(OwnerClosed(summary))
            return summary

    def outstanding(self) -> dict[str, dict[str, int]]:
        """Owner to resource to units still held; empty when everything has been returned."""
        with self._lock:
            held = {
                owner: {name: account.counts().outstanding for name, account in accounts.items()}
                for owner, accounts in self._accounts.items()
            }
        found = {owner: {name: n for name, n in names.items() if n} for owner, names in held.items()}
        return {owner: names for owner, names in found.items() if names}

    @property
    def num_open_owners(self) -> int:
        """Owners whose account has not been closed, whether or not they hold anything."""
        with self._lock:
            return len(self._accounts)

    @property
    def num_underflows(self) -> int:
        return self._num_underflows

    @property
    def num_dropped_leases(self) -> int:
        return self._num_dropped_leases

    def _account(self, owner: str, resource: str, amount: int) -> _Account:
        assert amount >= 1, f"{resource}: amounts are at least 1, not {amount}"
        return self._accounts.setdefault(owner, {}).setdefault(resource, _Account(resource))

    def _check_underflow(self, account: _Account) -> int:
        underflow = account.note_underflow()
        self._num_underflows += underflow > 0
        return underflow

    def _tell(
        self, action: ResourceAction, owner: str, account: _Account, amount: int, underflow: int = 0
    ) -> None:
        """What was just counted, for whoever watches."""
        if self._watch is None:
            return
        after, field = account.counts(), _COUNTED_AS[action]
        before = replace(after, **{field: getattr(after, field) - amount})
        self._watch(
            ResourceMoved(
                owner, account.resource, action, amount, before.outstanding, after.outstanding, underflow
            )
        )
