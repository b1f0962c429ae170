"""How an engine is doing, as values."""

from __future__ import annotations

from dataclasses import dataclass

from ferrum.cache.prefix_cache_status import PrefixCacheStatus
from ferrum.cache.recurrent_state import RecurrentStateStats


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """A snapshot. ``is_ready``: takes new requests. ``problem``: why it is dead or stuck, if it is.

    ``recurrent_states``: None for a model without any.
    """

    is_ready: bool
    problem: str | None
    num_running: int
    num_waiting: int
    num_kv_blocks: int
    num_used_kv_blocks: int
    kv_bytes: int
    used_kv_bytes: int
    context_length: int
    prefix_cache: PrefixCacheStatus
    recurrent_states: RecurrentStateStats | None = None
