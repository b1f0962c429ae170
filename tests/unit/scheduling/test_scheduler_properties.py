"""Whatever is submitted, cancelled and preempted: every request ends once, with its solo tokens."""

from __future__ import annotations

from functools import lru_cache

from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_driver import SchedulerDriver, solo_output, spec

from ferrum.core.config import SchedulerConfig

NUM_BLOCKS, BLOCK_TOKENS = 10, 4


@lru_cache(maxsize=4096)
def _solo(num_prompt_tokens: int, max_tokens: int) -> tuple[int, ...]:
    return tuple(solo_output(spec("alone", num_prompt_tokens, max_tokens)))


configs = st.builds(
    SchedulerConfig,
    max_running_requests=st.integers(1, 6),
    max_num_batched_tokens=st.integers(6, 40),
    prefill_first_until_active=st.integers(0, 8),
    prefill_step_chunk=st.integers(1, 40),
    active_decode_prefill_chunk=st.integers(1, 40),
    expected_output_tokens=st.integers(1, 12),
)
submissions = st.tuples(st.just("submit"), st.integers(1, 24), st.integers(1, 16), st.booleans())
actions = st.one_of(
    submissions,
    submissions,
    st.tuples(st.just("cancel"), st.integers(0, 100)),
    st.tuples(st.just("step"), st.integers(1, 5)),
)


@settings(max_examples=200, deadline=None)
@given(configs, st.booleans(), st.lists(actions, max_size=40))
def test_every_request_ends_once_with_its_solo_tokens(
    config: SchedulerConfig, caches_prefixes: bool, script: list[tuple]
) -> None:
    driver = SchedulerDriver(config, NUM_BLOCKS, BLOCK_TOKENS, caches_prefixes=caches_prefixes)
    cancelled = set()
    for number, (verb, *arguments) in enumerate(script):
        if verb == "submit":
            length, max_tokens, is_explicit = arguments
            driver.submit(spec(f"r{number}", length, max_tokens, is_budget_explicit=is_explicit))
        elif verb == "cancel" and driver.active:
            victim = driver.active[arguments[0] % len(driver.active)]
            cancelled.add(victim)
            driver.cancel(victim)
        elif verb == "step":
            for _ in range(arguments[0]):
                _checked_step(driver, config)
    while driver.active:
        _checked_step(driver, config)
    assert sorted(driver.finished) == sorted(driver.specs)
    for request_id, request in driver.specs.items():
        alone = _solo(len(request.prompt_ids), request.max_tokens)
        together = tuple(driver.outputs[request_id])
        assert together == alone[: len(together)] if request_id in cancelled else together == alone
    driver.assert_nothing_is_held()


def _checked_step(driver: SchedulerDriver, config: SchedulerConfig) -> None:
    had_work = bool(driver.active)
    plan = driver.step()
    assert (plan is not None) == had_work, "work and no plan, or a plan without work"
    assert driver.scheduler.num_running <= config.max_running_requests
    assert driver.cache.num_used_blocks <= NUM_BLOCKS
    if plan is not None:
        assert plan.num_tokens <= config.max_num_batched_tokens
        names = [part.request_id for part in plan.parts]
        assert len(names) == len(set(names))
        assert all(len(part.token_ids) <= max(config.prefill_step_chunk, 1) for part in plan.parts)


@settings(max_examples=60, deadline=None)
@given(
    configs,
    st.booleans(),
    st.lists(st.tuples(st.integers(1, 24), st.integers(1, 16)), min_size=2, max_size=12),
)
def test_explicit_budgets_are_never_preempted(
    config: SchedulerConfig, caches_prefixes: bool, requests: list[tuple[int, int]]
) -> None:
    driver = SchedulerDriver(config, NUM_BLOCKS, BLOCK_TOKENS, caches_prefixes=caches_prefixes)
    for index, (length, max_tokens) in enumerate(requests):
        driver.submit(spec(str(index), length, max_tokens))
    driver.run()
    assert {type(event).__name__ for event in driver.events} == {"RequestAdmitted"}
    driver.assert_nothing_is_held()


@settings(max_examples=60, deadline=None)
@given(
    configs,
    st.booleans(),
    st.lists(st.tuples(st.integers(1, 24), st.integers(1, 16)), min_size=2, max_size=12),
)
def test_a_default_budget_is_preempted_a_bounded_number_of_times(
    config: SchedulerConfig, caches_prefixes: bool, requests: list[tuple[int, int]]
) -> None:
    driver = SchedulerDriver(config, NUM_BLOCKS, BLOCK_TOKENS, caches_prefixes=caches_prefixes)
    for index, (length, max_tokens) in enumerate(requests):
        driver.submit(spec(str(index), length, max_tokens, is_budget_explicit=False))
    driver.run()
    names = [type(event).__name__ for event in driver.events]
    # Whoever is preempted comes back with all its room promised, and gives way again only to an older one.
    assert names.count("RequestPreempted") <= len(requests) * len(requests)
    assert names.count("RequestAdmitted") == len(requests) + names.count("RequestPreempted")
    driver.assert_nothing_is_held()
