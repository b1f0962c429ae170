from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrum.cache.block_pool import BlockLease, BlockPool
from ferrum.core.errors import ResourceExhausted
from ferrum.core.ledger import LifecycleLedger


def test_the_lowest_free_blocks_are_handed_out_first() -> None:
    pool = BlockPool(6, LifecycleLedger())
    first, second = pool.reserve("a", 2), pool.reserve("b", 2)
    assert (first.blocks, second.blocks) == ((0, 1), (2, 3))
    first.rollback()
    third = pool.reserve("c", 3)
    assert third.blocks == (0, 1, 4)
    second.rollback()
    third.rollback()


def test_too_few_free_blocks_change_nothing() -> None:
    ledger = LifecycleLedger()
    pool = BlockPool(3, ledger)
    held = pool.reserve("a", 2)
    with pytest.raises(ResourceExhausted) as caught:
        pool.reserve("b", 2)
    assert (caught.value.needed, caught.value.available) == (2, 1)
    assert pool.num_free == 1
    assert "b" not in ledger.outstanding()
    held.rollback()


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), max_size=40))
def test_no_block_is_ever_held_twice(actions: list[tuple[int, int]]) -> None:
    ledger = LifecycleLedger()
    pool = BlockPool(12, ledger)
    held: list[BlockLease] = []
    for count, choice in actions:
        if count <= pool.num_free:
            lease = pool.reserve("owner", count)
            lease.commit()
            held.append(lease)
        elif held:
            held.pop(choice % len(held)).release()
        blocks = [block for lease in held for block in lease.blocks]
        assert len(blocks) == len(set(blocks)) == pool.num_used
        assert ledger.outstanding() == ({"owner": {"kv_block": len(blocks)}} if blocks else {})
    for lease in held:
        lease.release()
    assert pool.num_free == 12
    assert ledger.outstanding() == {}
