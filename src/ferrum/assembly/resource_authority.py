"""Who owns what a request holds while it lives: one authority, never a mixture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ferrum.cache.block_pool import BlockPool
from ferrum.cache.cache_manager import CacheManager
from ferrum.cache.prefix_cache import PrefixCache
from ferrum.cache.recurrent_state import RecurrentStateManager
from ferrum.core.errors import InvalidConfig
from ferrum.core.ledger import LifecycleLedger
from ferrum.engine.engine_resources import EngineResources
from ferrum.execution.executor import Executor, ExecutorCapacity, ResourceAuthority


@dataclass(frozen=True, slots=True)
class ResourceOverrides:
    """Resource managers that were chosen in the builder: objects, or a KV cache by name.

    ``has_prefix_cache``: requests share KV blocks, where the executor's can be shared.
    """

    kv_cache: CacheManager | None = None
    kv_cache_name: str | None = None
    recurrent_states: RecurrentStateManager | None = None
    has_prefix_cache: bool = False


def compose_resources(
    executor: Executor,
    ledger: LifecycleLedger,
    overrides: ResourceOverrides,
    make_kv_cache: Callable[[], CacheManager],
    recurrent_state_max_slots: int | None,
) -> EngineResources:
    """The managers that fit the executor's authority.

    Plan-runtime: KV and state are the executor's, so its blocks are counted as they are. Engine-managed: what
    was chosen, else a new cache by name and a state manager in memory. Raises InvalidConfig for what does not
    fit; for a plan-runtime executor that is before ``make_kv_cache`` is called.
    """
    if executor.resource_authority is ResourceAuthority.PLAN_RUNTIME:
        return EngineResources(ResourceAuthority.PLAN_RUNTIME, _arena_of(executor, ledger, overrides))
    cache = _addressable(overrides.kv_cache or make_kv_cache(), executor.capacity)
    if cache.shares_prefixes and executor.block_store is None:
        raise InvalidConfig("kv_cache", "shares blocks between requests, which this executor's cannot be")
    if executor.block_keeper is not None:
        cache.tell(executor.block_keeper)
    states = overrides.recurrent_states or RecurrentStateManager(cache.ledger, recurrent_state_max_slots)
    if states.ledger is not cache.ledger:
        raise InvalidConfig("recurrent_states", "and the KV cache must count their leases in one ledger")
    return EngineResources(ResourceAuthority.ENGINE_MANAGED, cache, states)


def _arena_of(executor: Executor, ledger: LifecycleLedger, overrides: ResourceOverrides) -> CacheManager:
    if overrides.kv_cache is not None or overrides.kv_cache_name is not None:
        raise InvalidConfig("kv_cache", "a plan-runtime executor owns its KV arena; it takes no KV cache")
    if overrides.recurrent_states is not None:
        raise InvalidConfig(
            "recurrent_states", "a plan-runtime executor owns its state; it takes no state manager"
        )
    if executor.resolved_plan is None:
        raise InvalidConfig(
            "executor",
            "a plan-runtime executor must expose the authoritative ResolvedModelPlan, and has none",
        )
    capacity = executor.capacity
    prefix_cache = None
    if overrides.has_prefix_cache and executor.block_store is not None:
        prefix_cache = PrefixCache(
            executor.resolved_plan.identity, capacity.block_tokens, executor.block_store
        )
    return CacheManager(BlockPool(capacity.num_blocks, ledger), capacity.block_tokens, prefix_cache)


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
