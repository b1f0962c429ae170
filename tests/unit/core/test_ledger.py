from __future__ import annotations

import gc
import warnings

import pytest

from ferrum.core.lease import Lease, LeaseState
from ferrum.core.ledger import LifecycleLedger
from ferrum.core.ledger_entries import (
    LeaseDropped,
    LedgerEntry,
    OwnerClosed,
    ResourceAction,
    ResourceMoved,
)


def test_a_committed_and_released_resource_leaves_nothing_outstanding() -> None:
    ledger = LifecycleLedger()
    ledger.reserve("a", "kv_block", 3)
    ledger.commit("a", "kv_block", 3)
    assert ledger.outstanding() == {"a": {"kv_block": 3}}
    assert ledger.release("a", "kv_block", 3) == 0
    assert ledger.outstanding() == {}


def test_the_closing_summary_is_sorted_and_forgets_the_owner() -> None:
    ledger = LifecycleLedger()
    ledger.reserve("a", "request_slot")
    ledger.reserve("a", "kv_block", 2)
    ledger.rollback("a", "kv_block", 1)
    summary = ledger.close("a")
    assert [counts.resource for counts in summary.resources] == ["kv_block", "request_slot"]
    assert summary.outstanding == {"kv_block": 1, "request_slot": 1}
    assert ledger.num_open_owners == 0
    assert ledger.close("a").resources == ()


def test_an_underflow_is_reported_counted_and_not_repeated() -> None:
    ledger = LifecycleLedger()
    ledger.reserve("a", "kv_block", 1)
    ledger.commit("a", "kv_block", 1)
    assert ledger.release("a", "kv_block", 3) == 2
    assert ledger.release("a", "kv_block", 1) == 1
    assert ledger.num_underflows == 2
    (counts,) = ledger.close("a").resources
    assert (counts.outstanding, counts.underflow) == (0, 3)


def test_an_underflow_of_one_resource_does_not_hide_another_one_outstanding() -> None:
    ledger = LifecycleLedger()
    ledger.release("a", "kv_block", 5)
    ledger.reserve("a", "request_slot", 1)
    assert ledger.outstanding() == {"a": {"request_slot": 1}}


def test_amounts_below_one_are_a_bug() -> None:
    with pytest.raises(AssertionError, match="at least 1"):
        LifecycleLedger().reserve("a", "kv_block", 0)


def test_a_lease_goes_from_reserved_to_committed_to_released() -> None:
    ledger = LifecycleLedger()
    lease = Lease(ledger, "a", "kv_block", 2)
    assert lease.state is LeaseState.RESERVED
    lease.commit()
    lease.release()
    assert lease.state is LeaseState.RELEASED
    assert ledger.outstanding() == {}


@pytest.mark.parametrize("wrong", ["commit", "release", "rollback"])
def test_a_consumed_lease_cannot_be_used_again(wrong: str) -> None:
    lease = Lease(LifecycleLedger(), "a", "kv_block")
    lease.rollback()
    with pytest.raises(AssertionError, match="rolled back"):
        getattr(lease, wrong)()


def test_a_committed_lease_cannot_be_rolled_back() -> None:
    lease = Lease(LifecycleLedger(), "a", "kv_block")
    lease.commit()
    with pytest.raises(AssertionError, match="committed"):
        lease.rollback()
    lease.release()


def test_a_dropped_lease_warns_is_counted_and_stays_outstanding() -> None:
    ledger = LifecycleLedger()
    lease = Lease(ledger, "a", "kv_block", 4)
    lease.commit()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del lease
        gc.collect()
    assert [warning.category for warning in caught] == [ResourceWarning]
    assert "a dropped a lease of 4 kv_block" in str(caught[0].message)
    assert ledger.num_dropped_leases == 1
    assert ledger.outstanding() == {"a": {"kv_block": 4}}


def test_a_watched_ledger_tells_every_movement_in_order() -> None:
    ledger, seen = LifecycleLedger(), list[LedgerEntry]()
    ledger.watch(seen.append)
    ledger.reserve("a", "kv_block", 3)
    ledger.rollback("a", "kv_block", 1)
    ledger.commit("a", "kv_block", 2)
    ledger.release("a", "kv_block", 4)
    summary = ledger.close("a")
    assert seen == [
        ResourceMoved("a", "kv_block", ResourceAction.RESERVE, 3, before=0, after=3),
        ResourceMoved("a", "kv_block", ResourceAction.ROLLBACK, 1, before=3, after=2),
        ResourceMoved("a", "kv_block", ResourceAction.COMMIT, 2, before=2, after=2),
        ResourceMoved("a", "kv_block", ResourceAction.RELEASE, 4, before=2, after=0, underflow=2),
        OwnerClosed(summary),
    ]


def test_a_watched_ledger_tells_of_a_dropped_lease() -> None:
    ledger, seen = LifecycleLedger(), list[LedgerEntry]()
    lease = Lease(ledger, "a", "kv_block", 4)
    ledger.watch(seen.append)
    with pytest.warns(ResourceWarning):
        del lease
    assert seen == [LeaseDropped("a", "kv_block", 4)]


def test_a_lease_that_is_destroyed_while_another_is_counted_does_not_block() -> None:
    """The garbage collector runs wherever memory is asked for, under the ledger's lock too."""
    ledger = LifecycleLedger()
    leases = [Lease(ledger, "dropped", "kv_block")]

    def drop(entry: LedgerEntry) -> None:
        if leases:
            leases.pop()

    ledger.watch(drop)
    with pytest.warns(ResourceWarning):
        ledger.reserve("a", "kv_block")
    assert ledger.num_dropped_leases == 1
