"""Fitting sizes to memory: by hand, and as laws that hold for any needs and any budget."""

from __future__ import annotations

from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrum.assembly.memory_budget import MemoryBudget
from ferrum.assembly.memory_fit import (
    MEBIBYTE,
    ORDINARY_POOL_TOKENS,
    SEQUENCE_TOKENS,
    SMALLEST_CONTEXT,
    ExplicitSizes,
    MemoryFit,
    MemoryNeeds,
    SizeChange,
    Sizes,
    fit_memory,
)
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.errors import ResourceExhausted

BLOCK = 32
PER_TOKEN = 1024
WISHED = Sizes(context_length=4096, sequences=16, batch_tokens=512)
NEEDS = MemoryNeeds(
    weight_bytes=100 * MEBIBYTE,
    overhead_bytes=20 * MEBIBYTE,
    kv_bytes_per_token=PER_TOKEN,
    block_tokens=BLOCK,
    scratch=lambda sizes: 10_000 * sizes.batch_tokens + 100 * sizes.context_length,
)


def bound(num_bytes: int) -> MemoryBudget:
    return MemoryBudget(num_bytes, "--memory", "raise --memory", is_explicit=True)


def share(num_bytes: int) -> MemoryBudget:
    return MemoryBudget(num_bytes, "half of what the machine leaves", "free memory", False, share=0.5)


def fit(
    budget: MemoryBudget | None, wished: Sizes = WISHED, explicit: ExplicitSizes = ExplicitSizes()
) -> MemoryFit:
    return fit_memory(NEEDS, wished, explicit, budget)


def test_memory_that_nobody_knows_is_not_fitted_to() -> None:
    found = fit(None)
    assert found.sizes == WISHED
    assert found.num_blocks * BLOCK == ORDINARY_POOL_TOKENS
    assert found.changes == ()


def test_enough_memory_gives_every_wish_and_says_nothing() -> None:
    assert fit(bound(10**12)) == MemoryFit(
        sizes=WISHED,
        num_blocks=ORDINARY_POOL_TOKENS // BLOCK,
        block_tokens=BLOCK,
        kv_bytes_per_token=PER_TOKEN,
        total_bytes=NEEDS.fixed_bytes(WISHED) + ORDINARY_POOL_TOKENS * PER_TOKEN,
        budget=bound(10**12),
    )


def test_few_short_sequences_get_no_more_than_they_can_use() -> None:
    wished = Sizes(context_length=1024, sequences=3, batch_tokens=512)
    assert fit(bound(10**12), wished).num_blocks * BLOCK == 3 * 1024


def test_each_sequence_has_blocks_of_its_own_for_a_whole_context() -> None:
    found = fit(None, Sizes(context_length=2 * BLOCK + 1, sequences=3, batch_tokens=64))
    assert found.num_blocks == 3 * 3


def test_one_long_context_is_always_whole() -> None:
    wished = Sizes(context_length=131_072, sequences=1, batch_tokens=512)
    assert fit(bound(10**12), wished).num_blocks * BLOCK == 131_072


def test_the_pool_shrinks_before_any_size() -> None:
    least = NEEDS.least_bytes(WISHED)
    found = fit(bound(least))
    assert found.sizes == WISHED
    assert found.num_blocks * BLOCK == 4096 + 15 * SEQUENCE_TOKENS
    assert fit(bound(least + NEEDS.kv_bytes(7))).num_blocks == found.num_blocks + 7


def test_the_batch_gives_way_before_the_context_and_the_context_before_the_sequences() -> None:
    at_most = [
        (WISHED.with_count("batch_tokens", 100), {"batch_tokens"}),
        (Sizes(2048, 16, 64), {"batch_tokens", "context_length"}),
        (Sizes(512, 5, 64), {"batch_tokens", "context_length", "sequences"}),
    ]
    for sizes, changed in at_most:
        found = fit(bound(NEEDS.least_bytes(sizes)))
        assert found.sizes == sizes
        assert {change.name for change in found.changes} == changed
    assert found.changes[-1] == SizeChange("sequences", wished=16, chosen=5)


def test_without_a_bound_half_of_what_is_left_stays_for_others() -> None:
    budget = share(NEEDS.least_bytes(Sizes(512, 1, 64)) + 100 * MEBIBYTE)
    least = NEEDS.fixed_bytes(Sizes(512, 1, 64))
    assert fit(budget).total_bytes <= least + (budget.num_bytes - least) // 2
    assert fit(bound(budget.num_bytes)).total_bytes > fit(budget).total_bytes


def test_without_a_bound_what_was_asked_for_may_take_all() -> None:
    budget = share(NEEDS.least_bytes(WISHED))
    everything = ExplicitSizes(context_length=True, sequences=True, batch_tokens=True)
    assert fit(budget, explicit=everything).sizes == WISHED


@pytest.mark.parametrize(
    ("explicit", "advice"),
    [
        (ExplicitSizes(context_length=True), "lower --context-length to 3"),
        (ExplicitSizes(sequences=True), "lower --max-num-seqs to "),
        (ExplicitSizes(batch_tokens=True), "lower scheduler.max_num_batched_tokens to "),
    ],
)
def test_what_was_asked_for_fits_or_fails_with_what_to_lower_and_to_what(
    explicit: ExplicitSizes, advice: str
) -> None:
    asked = Sizes(
        context_length=4096 if explicit.context_length else SMALLEST_CONTEXT,
        sequences=16 if explicit.sequences else 1,
        batch_tokens=512 if explicit.batch_tokens else 64,
    )
    needed = NEEDS.least_bytes(asked)
    assert fit(bound(needed), WISHED, explicit).sizes == asked
    with pytest.raises(ResourceExhausted, match=advice) as refused:
        fit(bound(needed - MEBIBYTE // 2), WISHED, explicit)
    assert (refused.value.needed, refused.value.available) == (needed, needed - MEBIBYTE // 2)
    assert "or raise --memory by 1 MiB" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_advice_is_right() -> None:
    explicit = ExplicitSizes(context_length=True)
    budget = bound(NEEDS.least_bytes(Sizes(1000, 1, 64)))
    with pytest.raises(ResourceExhausted, match="lower --context-length to 1000, or"):
        fit(budget, WISHED, explicit)


def test_several_wishes_that_only_fit_together_when_lowered_are_all_named() -> None:
    explicit = ExplicitSizes(context_length=True, sequences=True)
    wished = Sizes(65_536, 400, 400)
    with pytest.raises(ResourceExhausted, match="lower --context-length and --max-num-seqs"):
        fit(bound(NEEDS.least_bytes(Sizes(64, 2, 400))), wished, explicit)


def test_a_model_that_is_too_large_is_said_to_be_so() -> None:
    with pytest.raises(ResourceExhausted, match=r"weights take 100 MiB.*use a smaller model.*free memory by"):
        fit(share(90 * MEBIBYTE))


def test_the_missing_memory_counts_at_its_source() -> None:
    assert share(100).missing_bytes(150) == 100
    assert bound(100).missing_bytes(150) == 50


def test_models_with_a_tiny_context_are_not_refused_for_it() -> None:
    assert fit(bound(10**9), Sizes(64, 16, 512)).sizes.context_length == 64


def test_values_that_are_no_defaults_were_asked_for() -> None:
    assert ExplicitSizes.of(EngineConfig()) == ExplicitSizes()
    chosen = EngineConfig(
        max_model_len=99, scheduler=SchedulerConfig(max_running_requests=3, max_num_batched_tokens=99)
    )
    assert ExplicitSizes.of(chosen) == ExplicitSizes(True, True, True)


def test_the_engine_gets_the_sizes_that_fit() -> None:
    config = fit(bound(NEEDS.least_bytes(Sizes(1024, 2, 64)))).applied_to(EngineConfig())
    assert config.max_model_len == fit(bound(NEEDS.least_bytes(Sizes(1024, 2, 64)))).sizes.context_length
    assert config.scheduler.max_num_batched_tokens == 64


@given(
    budget=st.one_of(st.builds(bound, st.integers(0, 2**33)), st.builds(share, st.integers(0, 2**33))),
    wished=st.builds(Sizes, st.integers(1, 200_000), st.integers(1, 300), st.integers(300, 5000)),
    explicit=st.builds(ExplicitSizes, st.booleans(), st.booleans(), st.booleans()),
    per_token=st.integers(0, 200_000),
)
def test_laws_of_fitting(
    budget: MemoryBudget, wished: Sizes, explicit: ExplicitSizes, per_token: int
) -> None:
    """A fit keeps its budget and every explicit value, never grows a wish, and says each change; a refusal
    means that the smallest allowed sizes do not fit."""
    needs = MemoryNeeds(10**8, 10**7, per_token, BLOCK, NEEDS.scratch)
    try:
        found = fit_memory(needs, wished, explicit, budget)
    except ResourceExhausted:
        smallest = Sizes(
            wished.context_length if explicit.context_length else min(wished.context_length, 512),
            wished.sequences if explicit.sequences else 1,
            wished.batch_tokens if explicit.batch_tokens else max(64, wished.sequences),
        )
        assert needs.least_bytes(smallest) > budget.num_bytes
        return
    sizes = found.sizes
    assert found.total_bytes == needs.fixed_bytes(sizes) + found.kv_bytes <= budget.num_bytes
    assert all(chosen <= asked for chosen, asked in zip(astuple(sizes), astuple(wished), strict=True))
    assert found.num_blocks * BLOCK >= sizes.context_length
    assert sizes.batch_tokens >= sizes.sequences >= 1
    changed = {change.name: change for change in found.changes}
    for name in ("context_length", "sequences", "batch_tokens"):
        asked, chosen = getattr(wished, name), getattr(sizes, name)
        if getattr(explicit, name):
            assert chosen == asked
        if chosen == asked:
            assert name not in changed
        else:
            assert changed[name] == SizeChange(name, asked, chosen)


@given(
    num_bytes=st.integers(10**8, 2**32),
    more=st.integers(0, 2**30),
    wished=st.builds(Sizes, st.integers(1, 50_000), st.integers(1, 64), st.integers(64, 2000)),
)
def test_more_memory_never_gives_a_smaller_fit(num_bytes: int, more: int, wished: Sizes) -> None:
    try:
        less = fit_memory(NEEDS, wished, ExplicitSizes(), bound(num_bytes))
    except ResourceExhausted:
        return
    larger = fit_memory(NEEDS, wished, ExplicitSizes(), bound(num_bytes + more))
    assert larger.sizes.context_length >= less.sizes.context_length
    assert larger.sizes.sequences >= less.sizes.sequences
