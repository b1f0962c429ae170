"""How long the context and how large the KV pool are, fitted to memory before anything is allocated.

Counts shrink to fit, numerics never change. What the caller named explicitly fits or fails.
"""

from __future__ import annotations

from dataclasses import dataclass

from ferrum.core.config import EngineConfig
from ferrum.core.errors import ResourceExhausted
from ferrum.plan.cost import plan_kv_bytes_per_token
from ferrum.plan.model_plan import ModelPlan

# Step buffers, tokenizer, interpreter: measured far below this for models up to a few GB.
OVERHEAD_BYTES = 256 * 1024 * 1024

# Without wishes: one context may take a quarter of what is left, the pool half; others live here too.
CONTEXT_SHARE = 4
POOL_SHARE = 2

# A pool for many sequences of ordinary length; each may still be as long as the context.
ORDINARY_POOL_TOKENS = 65_536

# A context below this is of no use to anybody, so memory that cannot hold it is too small.
SMALLEST_CONTEXT = 512


@dataclass(frozen=True, slots=True)
class KvSize:
    """``shrunk_from`` is the model's own context when memory did not allow it."""

    context_length: int
    num_blocks: int
    num_bytes: int
    bytes_per_token: int
    shrunk_from: int | None


def fit_kv(
    plan: ModelPlan, config: EngineConfig, weight_bytes: int, available_bytes: int | None, block_tokens: int
) -> KvSize:
    """Sizes for ``plan``; it was built for the longest context wanted. ``available_bytes`` None: not known.

    Raises ResourceExhausted with the numbers and the setting to change when even the least does not fit.
    """
    per_token = plan_kv_bytes_per_token(plan, config.kv_dtype)
    budget = _budget(config, available_bytes)
    fixed_bytes = weight_bytes + OVERHEAD_BYTES
    room = None if budget is None else budget - fixed_bytes
    context = _context(plan.context_length, config.max_model_len, room, per_token, fixed_bytes)
    wanted_tokens = min(config.scheduler.max_running_requests * context, max(context, ORDINARY_POOL_TOKENS))
    if room is not None:
        wanted_tokens = max(context, min(wanted_tokens, room // POOL_SHARE // per_token))
    num_blocks = -(-wanted_tokens // block_tokens)
    return KvSize(
        context_length=context,
        num_blocks=num_blocks,
        num_bytes=num_blocks * block_tokens * per_token,
        bytes_per_token=per_token,
        shrunk_from=plan.context_length
        if config.max_model_len is None and context < plan.context_length
        else None,
    )


def _budget(config: EngineConfig, available_bytes: int | None) -> int | None:
    if config.memory_bytes is not None:
        return config.memory_bytes
    return None if available_bytes is None else int(available_bytes * config.memory_utilization)


def _context(own: int, explicit: int | None, room: int | None, per_token: int, fixed_bytes: int) -> int:
    if room is None:
        return own if explicit is None else explicit
    if explicit is None:
        fitting = room // CONTEXT_SHARE // per_token
        context = own if fitting >= own else fitting - fitting % SMALLEST_CONTEXT
        needed = min(own, SMALLEST_CONTEXT)
    else:
        context = needed = explicit
    if context < needed or context * per_token > room:
        raise _no_room(needed, per_token, room, fixed_bytes)
    return context


def _no_room(context: int, per_token: int, room: int, fixed_bytes: int) -> ResourceExhausted:
    """Says all of it: a person has to see whether the weights or the context are too much."""
    return ResourceExhausted(
        "memory (bytes)",
        needed=fixed_bytes + context * per_token,
        available=fixed_bytes + room,
        advice=f"weights and buffers take {fixed_bytes}, "
        f"a context of {context} tokens {context * per_token}; "
        "lower --context-length, or use a smaller model",
    )
