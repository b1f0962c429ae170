from __future__ import annotations

import pytest

from ferrum.cache.block_pool import BlockPool
from ferrum.cache.cache_manager import CacheManager
from ferrum.core.errors import ResourceExhausted
from ferrum.core.ledger import LifecycleLedger


def _cache(num_blocks: int = 4, block_tokens: int = 4) -> tuple[CacheManager, LifecycleLedger]:
    ledger = LifecycleLedger()
    return CacheManager(BlockPool(num_blocks, ledger), block_tokens), ledger


@pytest.mark.parametrize(("num_tokens", "num_blocks"), [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_blocks_grow_with_tokens(num_tokens: int, num_blocks: int) -> None:
    cache, _ = _cache()
    assert cache.grow("a", num_tokens) == tuple(range(num_blocks))
    cache.release("a")


def test_growing_keeps_the_blocks_it_has_in_order() -> None:
    cache, _ = _cache()
    assert cache.grow("a", 3) == (0,)
    assert cache.grow("b", 3) == (1,)
    assert cache.grow("a", 9) == (0, 2, 3)
    assert cache.grow("a", 2) == (0, 2, 3)
    cache.release("a")
    cache.release("b")


def test_growth_is_all_or_nothing() -> None:
    cache, ledger = _cache()
    cache.grow("a", 8)
    with pytest.raises(ResourceExhausted):
        cache.grow("b", 12)
    assert cache.block_table("b") == ()
    assert cache.num_free_blocks == 2
    assert ledger.outstanding() == {"a": {"kv_block": 2}}
    cache.release("a")


def test_release_gives_everything_back_and_may_be_repeated() -> None:
    cache, ledger = _cache()
    cache.grow("a", 4)
    cache.grow("a", 16)
    assert cache.release("a") == 4
    assert cache.release("a") == 0
    assert (cache.num_used_blocks, cache.num_requests) == (0, 0)
    assert ledger.outstanding() == {}
