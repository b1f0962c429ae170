"""Prompts first, while the batch fills: what waits for them, and for how long."""

from __future__ import annotations

import pytest
from scheduler_driver import SchedulerDriver, solo_output, spec

from ferrum.core.config import SchedulerConfig
from ferrum.core.errors import InvalidConfig
from ferrum.core.step import StepPlan


def _names(plan: StepPlan | None) -> str:
    assert plan is not None
    return "".join(part.request_id for part in plan.parts)


def _driver(until_active: int, max_running_requests: int = 8, num_blocks: int = 64) -> SchedulerDriver:
    config = SchedulerConfig(
        max_running_requests=max_running_requests,
        prefill_first_until_active=until_active,
        prefill_step_chunk=2,
    )
    return SchedulerDriver(config, num_blocks)


def test_answers_wait_until_enough_requests_run() -> None:
    driver = _driver(3)
    driver.submit(spec("a", 2, max_tokens=20))
    driver.step()
    driver.submit(spec("b", 4, max_tokens=20))
    # Two run, one of them a prompt: it goes first until it answers, too.
    assert [_names(driver.step()) for _ in range(3)] == ["b", "b", "ab"]
    driver.submit(spec("c", 4, max_tokens=20))
    # Waiting it does not count; when it runs, there are three.
    assert [_names(driver.step()) for _ in range(3)] == ["c", "abc", "abc"]
    driver.run()
    driver.assert_nothing_is_held()


def test_without_it_answers_are_in_every_step() -> None:
    driver = _driver(0)
    driver.submit(spec("a", 2, max_tokens=20))
    driver.step()
    driver.submit(spec("b", 4))
    assert [_names(driver.step()) for _ in range(2)] == ["ab", "ab"]
    driver.run()


def test_a_step_without_prompts_is_for_the_answers() -> None:
    """Whoever waits finds no room, so there is nothing to fill the batch with."""
    driver = _driver(4, num_blocks=8)
    driver.submit(spec("a", 4, max_tokens=20))
    driver.step()
    driver.submit(spec("b", 20, max_tokens=8))
    assert _names(driver.step()) == "a"
    driver.run()
    for name, length, max_tokens in (("a", 4, 20), ("b", 20, 8)):
        assert driver.outputs[name] == solo_output(spec(name, length, max_tokens))


def test_prompts_without_end_do_not_hold_an_answer_for_ever() -> None:
    driver = _driver(4)
    driver.submit(spec("a", 2, max_tokens=5))
    driver.step()
    num_steps = 0
    while "a" not in driver.finished:
        driver.submit(spec(f"short {num_steps}", 2, max_tokens=1))
        driver.step()
        num_steps += 1
        assert num_steps < 100, "the answer is held up for ever"
    assert num_steps > 16, "the prompts did not go first"
    driver.run()
    driver.assert_nothing_is_held()


def test_more_than_can_run_means_as_many_as_can() -> None:
    driver = _driver(100, max_running_requests=2)
    driver.submit(spec("a", 2, max_tokens=20))
    driver.submit(spec("b", 2, max_tokens=20))
    driver.submit(spec("c", 2, max_tokens=20))
    assert [_names(driver.step()) for _ in range(3)] == ["ab", "ab", "ab"]
    driver.run()


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="prefill_first_until_active"):
        SchedulerConfig(prefill_first_until_active=-1)
