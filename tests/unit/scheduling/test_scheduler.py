from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from scheduler_driver import SchedulerDriver, solo_output, spec

from ferrum.core.config import SchedulerConfig
from ferrum.core.errors import QueueFull, ResourceExhausted
from ferrum.core.events import RequestAdmitted, RequestPreempted
from ferrum.core.step import StepPlan

MakeDriver = Callable[..., SchedulerDriver]


@pytest.fixture
def make_driver() -> Iterator[MakeDriver]:
    """Makes drivers and cancels, at the end, what a test left running."""
    drivers: list[SchedulerDriver] = []

    def make(config: SchedulerConfig | None = None, num_blocks: int = 16) -> SchedulerDriver:
        drivers.append(SchedulerDriver(config or SchedulerConfig(), num_blocks))
        return drivers[-1]

    yield make
    for driver in drivers:
        for request_id in driver.active:
            driver.cancel(request_id)
        driver.assert_nothing_is_held()


def _sizes(plan: StepPlan | None) -> dict[str, int]:
    assert plan is not None
    return {part.request_id: len(part.token_ids) for part in plan.parts}


def test_decodes_come_first_then_prefill_in_what_is_left(make_driver: MakeDriver) -> None:
    config = SchedulerConfig(max_running_requests=4, max_num_batched_tokens=8, prefill_step_chunk=8)
    driver = make_driver(config)
    driver.submit(spec("a", 3))
    driver.step()
    driver.submit(spec("b", 20))
    plan = driver.step()
    assert _sizes(plan) == {"a": 1, "b": 7}
    assert plan is not None
    assert plan.parts[0].request_id == "a"


def test_prefill_beside_decodes_is_capped(make_driver: MakeDriver) -> None:
    config = SchedulerConfig(active_decode_prefill_chunk=2)
    driver = make_driver(config)
    driver.submit(spec("a", 3))
    driver.step()
    driver.submit(spec("b", 20))
    assert _sizes(driver.step()) == {"a": 1, "b": 2}


def test_only_a_chunk_that_reaches_the_end_of_the_prompt_chooses_a_token(make_driver: MakeDriver) -> None:
    config = SchedulerConfig(max_running_requests=1, prefill_step_chunk=4)
    driver = make_driver(config)
    driver.submit(spec("a", 10, max_tokens=1))
    plans = driver.run()
    assert [_sizes(plan)["a"] for plan in plans] == [4, 4, 2]
    assert [len(part.choices) for plan in plans for part in plan.parts] == [0, 0, 1]


def test_a_short_prompt_overtakes_a_long_one_that_still_goes_on(make_driver: MakeDriver) -> None:
    config = SchedulerConfig(max_running_requests=4, max_num_batched_tokens=8, prefill_step_chunk=8)
    driver = make_driver(config, num_blocks=64)
    driver.submit(spec("long", 100))
    driver.step()
    driver.submit(spec("short", 4))
    assert _sizes(driver.step()) == {"long": 4, "short": 4}


def test_many_short_prompts_do_not_starve_a_long_one(make_driver: MakeDriver) -> None:
    config = SchedulerConfig(max_running_requests=8, max_num_batched_tokens=8, prefill_step_chunk=8)
    driver = make_driver(config, num_blocks=64)
    driver.submit(spec("long", 40, max_tokens=1))
    for index in range(30):
        driver.submit(spec(f"short{index}", 4, max_tokens=1))
    for _ in range(10):
        driver.step()
    assert "long" in driver.finished


def test_requests_are_admitted_in_order_and_never_more_than_allowed(make_driver: MakeDriver) -> None:
    driver = make_driver(SchedulerConfig(max_running_requests=2))
    for name in "abc":
        driver.submit(spec(name, 2))
    driver.step()
    assert (driver.scheduler.num_running, driver.scheduler.num_waiting) == (2, 1)
    driver.run()
    admitted = [event.request_id for event in driver.events if isinstance(event, RequestAdmitted)]
    assert admitted == ["a", "b", "c"]


def test_an_explicit_budget_waits_until_it_fits_and_is_never_preempted(make_driver: MakeDriver) -> None:
    # Each needs 5 blocks of 8; two by two would need 10.
    driver = make_driver(SchedulerConfig(), num_blocks=8)
    for name in "abcd":
        driver.submit(spec(name, 4, max_tokens=16))
    driver.step()
    assert (driver.scheduler.num_running, driver.scheduler.num_waiting) == (1, 3)
    driver.run()
    assert driver.finished == list("abcd")
    assert not [event for event in driver.events if isinstance(event, RequestPreempted)]
    driver.assert_nothing_is_held()


def test_default_budgets_share_the_pool_and_the_youngest_gives_way(make_driver: MakeDriver) -> None:
    config = SchedulerConfig(expected_output_tokens=4)
    driver = make_driver(config, num_blocks=8)
    requests = [spec(name, 4, max_tokens=24, is_budget_explicit=False) for name in "abc"]
    for request in requests:
        driver.submit(request)
    driver.step()
    assert driver.scheduler.num_running == 3
    driver.run()
    assert driver.outputs == {request.request_id: solo_output(request) for request in requests}
    preempted = [event.request_id for event in driver.events if isinstance(event, RequestPreempted)]
    assert sorted(preempted) == ["b", "c"]
    assert driver.finished == ["a", "b", "c"]
    driver.assert_nothing_is_held()


def test_a_preempted_request_comes_back_before_younger_ones(make_driver: MakeDriver) -> None:
    config = SchedulerConfig(expected_output_tokens=4, max_running_requests=2)
    driver = make_driver(config, num_blocks=8)
    for name in "abc":
        driver.submit(spec(name, 4, max_tokens=24, is_budget_explicit=False))
    driver.run()
    assert driver.finished == ["a", "b", "c"]


def test_a_request_that_could_never_run_is_refused(make_driver: MakeDriver) -> None:
    driver = make_driver(SchedulerConfig(), num_blocks=2)
    with pytest.raises(ResourceExhausted, match="lower max_tokens") as caught:
        driver.submit(spec("a", 4, max_tokens=5))
    assert (caught.value.needed, caught.value.available) == (3, 2)
    driver.assert_nothing_is_held()


def test_too_many_waiting_tokens_are_refused_but_a_single_request_may_wait(make_driver: MakeDriver) -> None:
    driver = make_driver(SchedulerConfig(max_waiting_tokens=10), num_blocks=64)
    driver.submit(spec("a", 30))
    with pytest.raises(QueueFull, match="30 tokens wait and the limit is 10") as caught:
        driver.submit(spec("b", 1))
    assert caught.value.unit == "tokens"
    driver.step()
    driver.submit(spec("b", 10))


def test_finishing_a_waiting_request_frees_its_place(make_driver: MakeDriver) -> None:
    driver = make_driver(SchedulerConfig(max_running_requests=1, max_waiting_tokens=10))
    driver.submit(spec("a", 2))
    driver.step()
    driver.submit(spec("b", 10))
    driver.cancel("b")
    driver.submit(spec("c", 10))
    driver.run()
    assert driver.finished == ["b", "a", "c"]
    driver.assert_nothing_is_held()


def test_an_idle_scheduler_plans_nothing(make_driver: MakeDriver) -> None:
    assert make_driver(SchedulerConfig()).step() is None


def test_parts_that_did_not_run_are_planned_again(make_driver: MakeDriver) -> None:
    driver = make_driver(SchedulerConfig(), num_blocks=16)
    driver.submit(spec("a", 5))
    first = driver.scheduler.schedule()
    driver.scheduler.commit((), ())
    assert driver.scheduler.schedule() == first
