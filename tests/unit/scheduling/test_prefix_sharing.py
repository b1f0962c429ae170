"""Requests that begin alike: what is computed, who waits for whom, and that nobody waits for ever."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from scheduler_driver import SchedulerDriver, solo_output

from ferrum.cache.prefix_scope import PrefixScope
from ferrum.core.config import SchedulerConfig
from ferrum.core.events import RequestPreempted
from ferrum.core.sampling_params import SamplingParams
from ferrum.scheduling.sequence import SequenceSpec

PREFIX = tuple(range(1, 31))  # seven blocks and a half
CONFIG = SchedulerConfig(max_running_requests=4, max_num_batched_tokens=16, prefill_step_chunk=8)


def request(
    name: str,
    suffix: Sequence[int],
    max_tokens: int = 4,
    salt: str | None = None,
    *,
    is_budget_explicit: bool = True,
) -> SequenceSpec:
    scope = PrefixScope(salt=salt)
    ids = (*PREFIX, *suffix)
    return SequenceSpec(name, ids, max_tokens, is_budget_explicit, SamplingParams(), seed=5, scope=scope)


@pytest.fixture
def drivers() -> Iterator[list[SchedulerDriver]]:
    made: list[SchedulerDriver] = []
    yield made
    for driver in made:
        for request_id in driver.active:
            driver.cancel(request_id)
        driver.assert_nothing_is_held()


@pytest.fixture
def driver(drivers: list[SchedulerDriver]) -> SchedulerDriver:
    drivers.append(SchedulerDriver(CONFIG, num_blocks=64, caches_prefixes=True))
    return drivers[-1]


def computed(driver: SchedulerDriver) -> int:
    """Runs to the end; the prompt tokens that were computed."""
    plans = driver.run()
    num_prompt_tokens = {name: len(spec.prompt_ids) for name, spec in driver.specs.items()}
    return sum(
        min(len(part.token_ids), max(0, num_prompt_tokens[part.request_id] - part.start_position))
        for plan in plans
        for part in plan.parts
    )


def assert_solo_tokens(driver: SchedulerDriver) -> None:
    for name, spec in driver.specs.items():
        expected = solo_output(spec)
        assert driver.outputs[name] == expected[: len(driver.outputs[name])]


@pytest.mark.parametrize("num_requests", [2, 4, 9])
def test_a_common_prefix_is_computed_once(driver: SchedulerDriver, num_requests: int) -> None:
    for number in range(num_requests):
        driver.submit(request(f"r{number}", [100 + number, 7]))
    assert computed(driver) == len(PREFIX) + 2 * num_requests
    assert_solo_tokens(driver)


def test_identical_prompts_compute_one_token_each_but_the_first(driver: SchedulerDriver) -> None:
    for number in range(5):
        driver.submit(request(f"r{number}", []))
    assert computed(driver) == len(PREFIX) + 4
    assert_solo_tokens(driver)


def test_followers_wait_and_unrelated_requests_pass_them(driver: SchedulerDriver) -> None:
    driver.submit(request("leader", [100]))
    driver.submit(request("follower", [101]))
    driver.submit(SequenceSpec("other", (9, 9, 9), 2, True, SamplingParams(), seed=5))
    plan = driver.step()
    assert plan is not None
    assert {part.request_id for part in plan.parts} == {"leader", "other"}
    assert (driver.scheduler.num_running, driver.scheduler.num_waiting) == (2, 1)


def test_followers_take_the_places_they_will_run_in(driver: SchedulerDriver) -> None:
    for number in range(4):
        driver.submit(request(f"r{number}", [100 + number]))
    driver.submit(SequenceSpec("late", (9, 9, 9), 2, True, SamplingParams(), seed=5))
    plan = driver.step()
    assert plan is not None
    assert {part.request_id for part in plan.parts} == {"r0"}


def test_a_leader_that_is_cancelled_leaves_what_it_did_and_another_goes_on(driver: SchedulerDriver) -> None:
    for number in range(3):
        driver.submit(request(f"r{number}", [100 + number]))
    driver.step()
    driver.step()
    driver.cancel("r0")
    # Sixteen tokens were there; r2 waits for r1.
    assert computed(driver) == len(PREFIX) - 16 + 2
    assert sorted(driver.finished) == ["r0", "r1", "r2"]
    assert_solo_tokens(driver)


def test_a_follower_that_is_cancelled_is_forgotten(driver: SchedulerDriver) -> None:
    driver.submit(request("leader", [100]))
    driver.submit(request("follower", [101]))
    driver.step()
    driver.cancel("follower")
    driver.run()
    assert driver.finished == ["follower", "leader"]


def test_a_leader_that_stands_still_is_not_waited_for_longer_than_allowed(driver: SchedulerDriver) -> None:
    driver.submit(request("leader", [100]))
    driver.submit(request("follower", [101]))
    driver.step()
    driver.clock.advance(9.0)
    driver.step()  # It moved: its time begins anew.
    driver.clock.advance(9.0)
    driver.scheduler.schedule()
    assert driver.scheduler.num_waiting == 1
    driver.scheduler.commit((), ())  # The step was given up.
    driver.clock.advance(10.0)
    plan = driver.step()
    assert plan is not None
    assert {part.request_id for part in plan.parts} == {"leader", "follower"}
    driver.run()
    assert_solo_tokens(driver)


def test_rendezvous_can_be_turned_off(drivers: list[SchedulerDriver]) -> None:
    config = SchedulerConfig(max_running_requests=4, prefix_rendezvous_max_wait_ms=0)
    driver = SchedulerDriver(config, num_blocks=64, caches_prefixes=True)
    drivers.append(driver)
    for number in range(3):
        driver.submit(request(f"r{number}", [100 + number]))
    driver.step()
    assert driver.scheduler.num_running == 3
    assert computed(driver) < 3 * len(PREFIX)
    assert_solo_tokens(driver)


def test_other_salts_are_neither_waited_for_nor_shared(driver: SchedulerDriver) -> None:
    for number, salt in enumerate([None, "a", "b"]):
        driver.submit(request(f"r{number}", [100], salt=salt))
    driver.step()
    assert driver.scheduler.num_running == 3
    driver.run()
    assert [driver.scheduler.has_work, driver.cache.status().hits] == [False, 0]
    assert_solo_tokens(driver)


def test_cached_tokens_are_those_of_the_prompt_that_were_found(driver: SchedulerDriver) -> None:
    driver.submit(request("a", [100]))
    driver.step()
    assert driver.scheduler.cache_use("a").cached_tokens == 0
    driver.run()
    driver.submit(request("b", [101]))
    driver.step()
    assert driver.scheduler.cache_use("b").cached_tokens == len(PREFIX)
    driver.run()


def test_a_shared_prefix_leaves_room_for_more_requests(drivers: list[SchedulerDriver]) -> None:
    # Each takes ten blocks, eight of them with the others: 8 + 4 · 2 fit in 16, two times 10 do not.
    driver = SchedulerDriver(CONFIG, num_blocks=16, caches_prefixes=True)
    drivers.append(driver)
    driver.submit(request("first", [100, 7]))
    driver.run()
    for number in range(4):
        driver.submit(request(f"r{number}", [100, 7, 50 + number]))
    driver.step()
    assert driver.scheduler.num_running == 4
    driver.run()
    assert_solo_tokens(driver)
    assert not [event for event in driver.events if isinstance(event, RequestPreempted)]


def test_a_preempted_request_finds_its_own_tokens_again(drivers: list[SchedulerDriver]) -> None:
    config = SchedulerConfig(expected_output_tokens=4)
    driver = SchedulerDriver(config, num_blocks=24, caches_prefixes=True)
    drivers.append(driver)
    requests = [request(name, [100], 20, salt=name, is_budget_explicit=False) for name in "ab"]
    for each in requests:
        driver.submit(each)
    plans = driver.run()
    assert [event.request_id for event in driver.events if isinstance(event, RequestPreempted)] == ["b"]
    assert_solo_tokens(driver)
    # Some of its blocks had to go, but not all.
    num_computed = sum(len(part.token_ids) for plan in plans for part in plan.parts if part.request_id == "b")
    assert num_computed < 31 + 19 + 20


def test_a_full_cache_never_defers_refuses_or_preempts(drivers: list[SchedulerDriver]) -> None:
    driver = SchedulerDriver(CONFIG, num_blocks=9, caches_prefixes=True)
    drivers.append(driver)
    for number in range(30):
        driver.submit(request(f"r{number}", [number + 40, number], 3, salt=str(number % 3)))
        if number % 4 == 0:
            driver.step()
    driver.run()
    assert len(driver.finished) == 30
    assert_solo_tokens(driver)
    assert not [event for event in driver.events if isinstance(event, RequestPreempted)]
    assert driver.cache.status().evictions > 0
