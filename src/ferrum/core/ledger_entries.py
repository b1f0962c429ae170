"""What a watched ledger tells, one value a movement. Nothing of this is built while nobody watches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from ferrum.core.owner_summary import OwnerSummary


class ResourceAction(StrEnum):
    """What can be done with units of a resource; see Lease for the order."""

    RESERVE = "reserve"
    COMMIT = "commit"
    RELEASE = "release"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class ResourceMoved:
    """``owner`` held ``before`` units of ``resource``, and holds ``after``; a return of more than was held
    has an ``underflow``.
    """

    owner: str
    resource: str
    action: ResourceAction
    amount: int
    before: int
    after: int
    underflow: int = 0


@dataclass(frozen=True, slots=True)
class OwnerClosed:
    """An account was closed. What is outstanding in ``summary`` has leaked."""

    summary: OwnerSummary


@dataclass(frozen=True, slots=True)
class LeaseDropped:
    """Our bug: a lease was destroyed before it was consumed; what it held stays outstanding."""

    owner: str
    resource: str
    amount: int


LedgerEntry = ResourceMoved | OwnerClosed | LeaseDropped
LedgerWatch = Callable[[LedgerEntry], None]
