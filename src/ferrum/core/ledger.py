"""The lifecycle ledger: what every owner reserved, committed and gave back, counted always.

It knows names and amounts only, never what a resource is.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ResourceCounts:
    """The life of one resource under one owner, in its units. ``underflow``: returned but never held."""

    resource: str
    reserved: int
    committed: int
    released: int
    rolled_back: int
    underflow: int = 0

    @property
    def outstanding(self) -> int:
        """Units still held: what was taken and not yet returned, never below zero."""
        return max(0, max(self.reserved, self.committed) - self.released - self.rolled_back)


@dataclass(frozen=True, slots=True)
class OwnerSummary:
    """Everything one owner held, as its account closes; sorted by resource."""

    owner: str
    resources: tuple[ResourceCounts, ...]

    @property
    def outstanding(self) -> dict[str, int]:
        """The resources that were not returned, with their amounts."""
        return {counts.resource: counts.outstanding for counts in self.resources if counts.outstanding}


class _Account:
    """Running numbers of one (owner, resource)."""

    __slots__ = ("committed", "released", "reserved", "rolled_back", "underflow")

    def __init__(self) -> None:
        self.reserved = self.committed = self.released = self.rolled_back = self.underflow = 0

    def counts(self, resource: str) -> ResourceCounts:
        return ResourceCounts(
            resource, self.reserved, self.committed, self.released, self.rolled_back, self.underflow
        )

    def note_underflow(self) -> int:
        missing = self.released + self.rolled_back - max(self.reserved, self.committed) - self.underflow
        self.underflow += max(0, missing)
        return max(0, missing)


class LifecycleLedger:
    """Counts reserve, commit, release and rollback per owner and resource. Any thread may call it.

    A return of more than was taken is an underflow: it is counted, reported by the call, and never hides an
    outstanding unit of another resource.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._accounts: dict[str, dict[str, _Account]] = {}
        self._num_underflows = 0
        self._num_dropped_leases = 0

    def reserve(self, owner: str, resource: str, amount: int = 1) -> None:
        """Takes ``amount`` units (at least 1) for ``owner``, to be committed or rolled back."""
        with self._lock:
            self._account(owner, resource, amount).reserved += amount

    def commit(self, owner: str, resource: str, amount: int = 1) -> None:
        """Confirms ``amount`` reserved units: from now on they are released, not rolled back."""
        with self._lock:
            self._account(owner, resource, amount).committed += amount

    def release(self, owner: str, resource: str, amount: int = 1) -> int:
        """Returns ``amount`` committed units; the answer is the underflow, 0 when all is right."""
        with self._lock:
            account = self._account(owner, resource, amount)
            account.released += amount
            return self._check_underflow(account)

    def rollback(self, owner: str, resource: str, amount: int = 1) -> int:
        """Returns ``amount`` reserved units that were never committed; the answer is the underflow."""
        with self._lock:
            account = self._account(owner, resource, amount)
            account.rolled_back += amount
            return self._check_underflow(account)

    def record_dropped_lease(self) -> None:
        """Notes that a lease was destroyed without being consumed."""
        with self._lock:
            self._num_dropped_leases += 1

    def close(self, owner: str) -> OwnerSummary:
        """Forgets ``owner`` and says what it held; an unknown owner held nothing."""
        with self._lock:
            accounts = self._accounts.pop(owner, {})
        return OwnerSummary(owner, tuple(accounts[name].counts(name) for name in sorted(accounts)))

    def outstanding(self) -> dict[str, dict[str, int]]:
        """Owner to resource to units still held; empty when everything has been returned."""
        with self._lock:
            held = {
                owner: {name: account.counts(name).outstanding for name, account in accounts.items()}
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
        return self._accounts.setdefault(owner, {}).setdefault(resource, _Account())

    def _check_underflow(self, account: _Account) -> int:
        underflow = account.note_underflow()
        self._num_underflows += underflow > 0
        return underflow
