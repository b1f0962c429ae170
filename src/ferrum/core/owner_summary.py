"""OwnerSummary: what one owner took and gave back, as its account in the ledger closes."""

from __future__ import annotations

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
