"""Who is let in first and who gives way, when requests carry priorities or belong to tenants."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from scheduler_driver import SchedulerDriver, solo_output, spec

from ferrum.core.config import SchedulerConfig
from ferrum.core.errors import InvalidRequest
from ferrum.core.events import RequestAdmitted, RequestPreempted
from ferrum.core.scheduling_policy import SchedulingPolicy
from ferrum.scheduling.sequence import SequenceSpec
from ferrum.scheduling.tenant_shares import TenantShares

PRIORITY = SchedulerConfig(max_running_requests=1, policy=SchedulingPolicy.PRIORITY)
FAIR = SchedulerConfig(max_running_requests=2, fair_tenants=True)


def prior(request_id: str, priority: int, num_prompt_tokens: int = 3, max_tokens: int = 4) -> SequenceSpec:
    return replace(spec(request_id, num_prompt_tokens, max_tokens), priority=priority)


def of(tenant: str | None, request_id: str, max_tokens: int = 4) -> SequenceSpec:
    return replace(spec(request_id, 3, max_tokens), tenant=tenant)


def admitted(driver: SchedulerDriver) -> list[str]:
    return [event.request_id for event in driver.events if isinstance(event, RequestAdmitted)]


def preempted(driver: SchedulerDriver) -> list[str]:
    return [event.request_id for event in driver.events if isinstance(event, RequestPreempted)]


def test_lower_numbers_are_let_in_first_and_equals_as_they_came() -> None:
    driver = SchedulerDriver(PRIORITY)
    for request_id, priority in (("a", 5), ("b", 0), ("c", -3), ("d", 0), ("e", -3)):
        driver.submit(prior(request_id, priority))
    driver.run()
    assert admitted(driver) == ["c", "e", "b", "d", "a"]
    driver.assert_nothing_is_held()


@pytest.mark.parametrize("priority", [1, -1])
def test_a_priority_that_would_be_ignored_is_refused_by_name(priority: int) -> None:
    driver = SchedulerDriver(SchedulerConfig())
    with pytest.raises(InvalidRequest, match="--scheduling-policy") as caught:
        driver.submit(prior("a", priority))
    assert caught.value.param == "priority"
    driver.submit(prior("b", 0))
    with pytest.raises(InvalidRequest, match="--scheduling-policy"):
        driver.scheduler.update_priority("b", priority)
    driver.run()
    driver.assert_nothing_is_held()


def test_the_least_important_gives_way_even_if_it_is_the_oldest() -> None:
    config = SchedulerConfig(policy=SchedulingPolicy.PRIORITY, expected_output_tokens=1)
    driver = SchedulerDriver(config, num_blocks=8)
    requests = [
        replace(prior(name, priority, 4, 16), is_budget_explicit=False)
        for name, priority in (("low", 9), ("high", 0), ("middle", 5))
    ]
    for request in requests:
        driver.submit(request)
        driver.step()
    driver.run()
    assert preempted(driver)[0] == "low"
    assert "high" not in preempted(driver)
    for request in requests:
        assert driver.outputs[request.request_id] == solo_output(replace(request, priority=0))
    driver.assert_nothing_is_held()


def test_a_preempted_request_keeps_its_place_among_equals() -> None:
    config = SchedulerConfig(policy=SchedulingPolicy.PRIORITY, expected_output_tokens=1)
    driver = SchedulerDriver(config, num_blocks=8)
    for name in "abc":
        driver.submit(replace(prior(name, 1, 4, 16), is_budget_explicit=False))
    while not preempted(driver):
        driver.step()
    [gave_way] = preempted(driver)
    driver.submit(prior("younger", 1))
    driver.submit(prior("urgent", 0))
    driver.run()
    later = admitted(driver)[3:]
    assert later.index("urgent") < later.index(gave_way) < later.index("younger")
    driver.assert_nothing_is_held()


def test_a_changed_priority_counts_from_the_next_step() -> None:
    driver = SchedulerDriver(PRIORITY)
    for name in "abc":
        driver.submit(prior(name, 0))
    driver.step()
    driver.scheduler.update_priority("c", -1)
    driver.scheduler.update_priority("a", 7)  # It runs, and goes on.
    driver.run()
    assert admitted(driver) == ["a", "c", "b"]
    driver.assert_nothing_is_held()


def test_nobody_waits_for_the_prefix_of_somebody_less_important() -> None:
    config = SchedulerConfig(policy=SchedulingPolicy.PRIORITY, prefill_step_chunk=4)
    driver = SchedulerDriver(config, num_blocks=32, caches_prefixes=True)
    driver.submit(prior("low", 1, 30))
    driver.step()
    driver.submit(prior("high", 0, 30))
    driver.submit(prior("same", 1, 30))
    driver.step()
    assert admitted(driver) == ["low", "high"]
    driver.run()
    driver.assert_nothing_is_held()


def test_one_tenants_flood_does_not_keep_another_waiting() -> None:
    driver = SchedulerDriver(FAIR)
    for number in range(20):
        driver.submit(of("flood", f"flood{number}"))
    driver.step()
    for number in range(3):
        driver.submit(of("guest", f"guest{number}"))
    driver.run()
    places = [admitted(driver).index(f"guest{number}") for number in range(3)]
    assert places == [2, 4, 6] or places[-1] <= 7
    driver.assert_nothing_is_held()


def test_without_fairness_tenants_are_served_as_they_came() -> None:
    driver = SchedulerDriver(SchedulerConfig(max_running_requests=2))
    names = [f"flood{number}" for number in range(5)] + ["guest"]
    for name in names:
        driver.submit(of(name.rstrip("01234"), name))
    driver.run()
    assert admitted(driver) == names
    driver.assert_nothing_is_held()


def test_tenants_get_equal_tokens_whatever_they_ask_for_at_once() -> None:
    """One asks for long answers, one for short ones, one has five times as many requests as the others."""
    driver = SchedulerDriver(FAIR, num_blocks=64)
    tenant_of: dict[str, str] = {}
    for number in range(150):
        for tenant, max_tokens, copies in (("long", 20, 1), ("short", 2, 3), ("many", 6, 5)):
            for copy in range(copies):
                request_id = f"{tenant}{number}.{copy}"
                tenant_of[request_id] = tenant
                driver.submit(of(tenant, request_id, max_tokens))
    work: Counter[str] = Counter()
    for _ in range(400):
        plan = driver.step()
        assert plan is not None
        for part in plan.parts:
            cost = len(part.token_ids) * (part.start_position < 3) + 2 * len(part.choices)
            work[tenant_of[part.request_id]] += cost
    assert max(work.values()) <= 1.1 * min(work.values()), work
    for request_id in driver.active:
        driver.cancel(request_id)
    driver.assert_nothing_is_held()


def test_being_away_earns_no_credit() -> None:
    shares = TenantShares()
    shares.join("busy")
    shares.charge("busy", 1000)
    shares.join("late")
    assert shares.served("late") == 1000
    shares.charge("late", 10)
    shares.leave("late")
    shares.charge("busy", 5)
    shares.join("late")
    assert shares.served("late") == 1010, "and coming back does not take away what one had"


def test_names_do_not_pile_up() -> None:
    shares = TenantShares()
    shares.join("stays")
    for number in range(1000):
        shares.join(f"passing{number}")
        shares.charge(f"passing{number}", 10)
        shares.charge("stays", 20)
        shares.leave(f"passing{number}")
    assert len(shares) < 5
    shares.leave("stays")
    assert len(shares) == 0


def test_priority_comes_before_shares() -> None:
    config = SchedulerConfig(max_running_requests=1, fair_tenants=True, policy=SchedulingPolicy.PRIORITY)
    driver = SchedulerDriver(config)
    driver.submit(of("a", "first", max_tokens=10))
    driver.step()
    driver.submit(of("b", "fair"))
    driver.submit(replace(of("a", "urgent"), priority=-1))
    driver.run()
    assert admitted(driver) == ["first", "urgent", "fair"]
    driver.assert_nothing_is_held()
