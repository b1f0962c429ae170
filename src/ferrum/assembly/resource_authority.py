"""Who owns the KV blocks of an engine: one authority, never a mixture."""

from __future__ import annotations

from collections.abc import Callable

from ferrum.cache.block_pool import BlockPool
from ferrum.cache.cache_manager import CacheManager
from ferrum.core.errors import InvalidConfig
from ferrum.core.ledger import LifecycleLedger
from ferrum.execution.executor import Executor, ExecutorCapacity, ResourceAuthority


def compose_cache(
    executor: Executor,
    ledger: LifecycleLedger,
    *,
    override: CacheManager | None,
    override_name: str | None,
    make_kv_cache: Callable[[], CacheManager],
) -> CacheManager:
    """The bookkeeping of KV blocks that fits the executor's authority.

    Plan-runtime: the arena is the executor's, so its blocks are counted as they are. Engine-managed: the
    override, or a new cache by name, as long as the executor can address its blocks. Raises InvalidConfig for
    what does not fit; for a plan-runtime executor that is before ``make_kv_cache`` is called.
    """
    if executor.resource_authority is ResourceAuthority.ENGINE_MANAGED:
        return _addressable(override or make_kv_cache(), executor.capacity)
    if override is not None or override_name is not None:
        raise InvalidConfig("kv_cache", "a plan-runtime executor owns its KV arena; it takes no KV cache")
    if executor.resolved_plan is None:
        raise InvalidConfig(
            "executor",
            "a plan-runtime executor must expose the authoritative ResolvedModelPlan, and has none",
        )
    capacity = executor.capacity
    return CacheManager(BlockPool(capacity.num_blocks, ledger), capacity.block_tokens)


def _addressable(cache: CacheManager, capacity: ExecutorCapacity) -> CacheManager:
    if cache.block_tokens != capacity.block_tokens:
        raise InvalidConfig(
            "kv_cache",
            f"has blocks of {cache.block_tokens} tokens; the executor's have {capacity.block_tokens}",
        )
    if cache.num_blocks > capacity.num_blocks:
        raise InvalidConfig(
            "kv_cache.num_blocks",
            f"{cache.num_blocks} is more than the executor holds ({capacity.num_blocks}); lower it",
        )
    return cache
