"""MemoryFit: context, sequences, batch and KV blocks, fitted to memory before anything is allocated.

Counts shrink to fit, numerics never change. What was asked for explicitly fits or fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ferrum.assembly.memory_budget import MemoryBudget
from ferrum.core.config import EngineConfig
from ferrum.core.errors import ResourceExhausted

MEBIBYTE = 1024 * 1024

# A pool for many sequences of ordinary length; each may still be as long as the context.
ORDINARY_POOL_TOKENS = 65_536

# What every sequence but the longest is sure to find room for.
SEQUENCE_TOKENS = 256

# Below these a model is of little use, so nothing shrinks further by itself.
SMALLEST_CONTEXT = 512
SMALLEST_BATCH = 64

# In the order in which they give way.
SETTINGS = {
    "batch_tokens": "scheduler.max_num_batched_tokens",
    "context_length": "--context-length",
    "sequences": "--max-num-seqs",
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """The counts that memory depends on; more of any never takes less memory."""

    context_length: int
    sequences: int
    batch_tokens: int

    def with_count(self, name: str, count: int) -> Sizes:
        return replace(self, **{name: count})


@dataclass(frozen=True, slots=True)
class ExplicitSizes:
    """Which sizes somebody asked for: by a flag, in a file or in a program."""

    context_length: bool = False
    sequences: bool = False
    batch_tokens: bool = False

    @staticmethod
    def of(config: EngineConfig) -> ExplicitSizes:
        """A value that is not the default was asked for."""
        usual = EngineConfig().scheduler
        return ExplicitSizes(
            context_length=config.max_model_len is not None,
            sequences=config.scheduler.max_running_requests != usual.max_running_requests,
            batch_tokens=config.scheduler.max_num_batched_tokens != usual.max_num_batched_tokens,
        )


@dataclass(frozen=True, slots=True)
class MemoryNeeds:
    """What a model takes at given sizes, all in bytes. ``scratch`` must not fall when a size grows."""

    weight_bytes: int
    overhead_bytes: int
    kv_bytes_per_token: int
    block_tokens: int
    scratch: Callable[[Sizes], int]

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_tokens)

    def kv_bytes(self, num_blocks: int) -> int:
        return num_blocks * self.block_tokens * self.kv_bytes_per_token

    def least_blocks(self, sizes: Sizes) -> int:
        """One whole context, and some room for each other sequence."""
        others = (sizes.sequences - 1) * self.blocks_for(min(sizes.context_length, SEQUENCE_TOKENS))
        return self.blocks_for(sizes.context_length) + others

    def most_blocks(self, sizes: Sizes) -> int:
        """More than this is not worth having."""
        ordinary = max(sizes.context_length, ORDINARY_POOL_TOKENS)
        # Nobody shares a block that is partly filled.
        wanted = min(sizes.sequences * self.blocks_for(sizes.context_length), self.blocks_for(ordinary))
        return max(wanted, self.least_blocks(sizes))

    def fixed_bytes(self, sizes: Sizes) -> int:
        """Everything but the KV cache."""
        return self.weight_bytes + self.overhead_bytes + self.scratch(sizes)

    def total_bytes(self, sizes: Sizes, num_blocks: int) -> int:
        return self.fixed_bytes(sizes) + self.kv_bytes(num_blocks)

    def least_bytes(self, sizes: Sizes) -> int:
        return self.total_bytes(sizes, self.least_blocks(sizes))


@dataclass(frozen=True, slots=True)
class SizeChange:
    """A size that gave way: ``name`` is a field of Sizes."""

    name: str
    wished: int
    chosen: int


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """What was chosen. ``budget`` is None where the system does not say what there is."""

    sizes: Sizes
    num_blocks: int
    block_tokens: int
    kv_bytes_per_token: int
    total_bytes: int
    budget: MemoryBudget | None
    changes: tuple[SizeChange, ...] = field(default=())

    @property
    def kv_bytes(self) -> int:
        return self.num_blocks * self.block_tokens * self.kv_bytes_per_token

    def applied_to(self, config: EngineConfig) -> EngineConfig:
        """``config`` with the sizes that were chosen."""
        scheduler = replace(
            config.scheduler,
            max_running_requests=self.sizes.sequences,
            max_num_batched_tokens=self.sizes.batch_tokens,
        )
        return replace(config, max_model_len=self.sizes.context_length, scheduler=scheduler)


def fit_memory(
    needs: MemoryNeeds, wished: Sizes, explicit: ExplicitSizes, budget: MemoryBudget | None
) -> MemoryFit:
    """The largest sizes up to ``wished`` that fit; the batch gives way first, then context, then sequences.

    Raises ResourceExhausted, with what to lower and to what, when even the smallest do not fit.
    """
    if budget is None:
        return _fit(needs, wished, needs.most_blocks(wished), budget, ())
    least = _least(wished, explicit)
    if needs.least_bytes(least) > budget.num_bytes:
        raise _does_not_fit(needs, least, explicit, budget)
    limit = budget.num_bytes
    if not budget.is_explicit:
        # Others live here too: sizes that nobody asked for leave half of what is left to them.
        free = limit - needs.fixed_bytes(least)
        limit = max(limit - free // 2, needs.least_bytes(least))
    sizes, changes = _shrink(needs, wished, least, limit)
    room = limit - needs.fixed_bytes(sizes)
    affordable = room // max(1, needs.kv_bytes(1))
    num_blocks = max(needs.least_blocks(sizes), min(needs.most_blocks(sizes), affordable))
    return _fit(needs, sizes, num_blocks, budget, changes)


def _fit(
    needs: MemoryNeeds,
    sizes: Sizes,
    num_blocks: int,
    budget: MemoryBudget | None,
    changes: tuple[SizeChange, ...],
) -> MemoryFit:
    return MemoryFit(
        sizes=sizes,
        num_blocks=num_blocks,
        block_tokens=needs.block_tokens,
        kv_bytes_per_token=needs.kv_bytes_per_token,
        total_bytes=needs.total_bytes(sizes, num_blocks),
        budget=budget,
        changes=changes,
    )


def _least(wished: Sizes, explicit: ExplicitSizes) -> Sizes:
    """The smallest sizes that may be chosen: explicit ones stay."""
    smallest_batch = min(wished.batch_tokens, max(SMALLEST_BATCH, wished.sequences))
    smallest_context = min(wished.context_length, SMALLEST_CONTEXT)
    return Sizes(
        context_length=wished.context_length if explicit.context_length else smallest_context,
        sequences=wished.sequences if explicit.sequences else 1,
        batch_tokens=wished.batch_tokens if explicit.batch_tokens else smallest_batch,
    )


def _shrink(
    needs: MemoryNeeds, wished: Sizes, least: Sizes, limit: int
) -> tuple[Sizes, tuple[SizeChange, ...]]:
    sizes, changes = wished, []
    for name in SETTINGS:
        if needs.least_bytes(sizes) <= limit:
            break
        lowest, highest = getattr(least, name), getattr(sizes, name)
        fitting = _largest_fitting(needs, sizes, name, lowest, limit)
        chosen = lowest if fitting is None else fitting
        if name == "context_length" and chosen < highest:
            chosen = max(lowest, chosen - chosen % SMALLEST_CONTEXT)
        if chosen != highest:
            changes.append(SizeChange(name, highest, chosen))
            sizes = sizes.with_count(name, chosen)
    return sizes, tuple(changes)


def _largest_fitting(needs: MemoryNeeds, sizes: Sizes, name: str, lowest: int, limit: int) -> int | None:
    """The largest count of ``name``, from ``lowest`` to that of ``sizes``, that fits with the others."""

    def fits(count: int) -> bool:
        return needs.least_bytes(sizes.with_count(name, count)) <= limit

    highest = getattr(sizes, name)
    if not fits(lowest):
        return None
    while lowest < highest:
        middle = (lowest + highest + 1) // 2
        lowest, highest = (middle, highest) if fits(middle) else (lowest, middle - 1)
    return lowest


def _does_not_fit(
    needs: MemoryNeeds, least: Sizes, explicit: ExplicitSizes, budget: MemoryBudget
) -> ResourceExhausted:
    """Says all of it: a person has to see whether the weights or the sizes are too much."""
    needed = needs.least_bytes(least)
    remedies = [
        *_remedies(needs, least, explicit, budget.num_bytes),
        f"{budget.how_to_raise} by {_mebibytes(budget.missing_bytes(needed))}",
    ]
    weights, blocks = needs.weight_bytes, needs.least_blocks(least)
    return ResourceExhausted(
        "memory (bytes)",
        needed=needed,
        available=budget.num_bytes,
        advice=f"weights take {_mebibytes(weights)}, buffers and overhead "
        f"{_mebibytes(needs.fixed_bytes(least) - weights)}, the KV cache for {_described(least)} "
        f"{_mebibytes(needs.kv_bytes(blocks))}; the limit is {budget.source}; {', or '.join(remedies)}",
    )


def _remedies(needs: MemoryNeeds, least: Sizes, explicit: ExplicitSizes, limit: int) -> list[str]:
    """Each setting that alone makes it fit, and to what; else the settings together, or another model."""
    lowest = Sizes(min(least.context_length, needs.block_tokens), 1, 1)
    remedies = []
    for name, setting in SETTINGS.items():
        floor = least.sequences if name == "batch_tokens" else getattr(lowest, name)
        fitting = _largest_fitting(needs, least, name, floor, limit)
        if fitting is not None:
            remedies.append(f"lower {setting} to {fitting}")
    if remedies:
        return remedies
    asked = [setting for name, setting in SETTINGS.items() if getattr(explicit, name)]
    if asked and needs.least_bytes(lowest) <= limit:
        return [f"lower {' and '.join(asked)}"]
    return ["use a smaller model"]


def _described(sizes: Sizes) -> str:
    sequences = f" and {sizes.sequences} sequences" if sizes.sequences > 1 else ""
    return f"a context of {sizes.context_length} tokens{sequences}"


def _mebibytes(num_bytes: int) -> str:
    return f"{-(-num_bytes // MEBIBYTE)} MiB"
