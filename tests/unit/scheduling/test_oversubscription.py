"""Far more is asked for than the KV pool holds: everybody is answered, and little is computed twice."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest
from scheduler_driver import SchedulerDriver, spec

from ferrum.core.config import SchedulerConfig
from ferrum.core.events import RequestAdmitted, RequestPreempted
from ferrum.scheduling.output_lengths import OutputLengths
from ferrum.scheduling.sequence import SequenceSpec

BLOCK_TOKENS = 8


@dataclass(frozen=True)
class Load:
    """Requests without max_tokens of their own, whose answers turn out to have ``shortest`` tokens or more.

    ``num_blocks`` hold a few of them at their full length.
    """

    num_requests: int
    longest_prompt: int
    shortest_output: int
    longest_output: int
    expected_output_tokens: int
    num_blocks: int


LOADS = {
    "outputs as expected": Load(60, 60, 1, 40, 40, 60),
    "outputs eight times as long": Load(60, 60, 1, 320, 40, 120),
    "long prompts and outputs": Load(60, 200, 1, 300, 20, 120),
    "room for two": Load(60, 100, 1, 200, 10, 80),
    "all as long as one another": Load(80, 20, 200, 200, 8, 120),
}


def requests_of(load: Load) -> list[tuple[SequenceSpec, int]]:
    """Each with the length of its answer, which the scheduler does not know."""
    draw = random.Random(7)
    requests = []
    for number in range(load.num_requests):
        ids = tuple(draw.randint(1, 200) for _ in range(draw.randint(1, load.longest_prompt)))
        most = min(load.num_blocks * BLOCK_TOKENS - len(ids), 4 * load.longest_output)
        request = replace(spec(f"r{number}", 1, most, is_budget_explicit=False), prompt_ids=ids)
        requests.append((request, draw.randint(load.shortest_output, load.longest_output)))
    return requests


def run(driver: SchedulerDriver, requests: list[tuple[SequenceSpec, int]]) -> int:
    """The answer is how many tokens were computed."""
    for request, _ in requests:
        driver.submit(request)
    num_computed = 0
    while driver.active:
        plan = driver.step()
        assert plan is not None
        num_computed += plan.num_tokens
        for request, length in requests:
            if len(driver.outputs[request.request_id]) == length and request.request_id in driver.active:
                driver.cancel(request.request_id)
    driver.assert_nothing_is_held()
    return num_computed


@pytest.mark.parametrize("caches_prefixes", [False, True])
@pytest.mark.parametrize("name", LOADS)
def test_little_is_computed_twice(name: str, caches_prefixes: bool) -> None:
    load = LOADS[name]
    config = SchedulerConfig(expected_output_tokens=load.expected_output_tokens)
    driver = SchedulerDriver(config, load.num_blocks, BLOCK_TOKENS, caches_prefixes=caches_prefixes)
    requests = requests_of(load)
    num_computed = run(driver, requests)
    once = sum(len(request.prompt_ids) + length - 1 for request, length in requests)
    num_preemptions = sum(isinstance(event, RequestPreempted) for event in driver.events)
    assert num_computed <= 1.1 * once, (num_computed / once, num_preemptions)
    assert num_preemptions <= load.num_requests / 3
    told = sum(event.recompute_tokens for event in driver.events if isinstance(event, RequestAdmitted))
    # Of a few prompts the beginning is found in the cache.
    assert (num_computed - once <= told) if caches_prefixes else (num_computed - once == told)
    for request, length in requests[::9]:
        alone = SchedulerDriver(SchedulerConfig(), load.num_blocks, BLOCK_TOKENS)
        run(alone, [(request, length)])
        assert driver.outputs[request.request_id] == alone.outputs[request.request_id]


def test_what_is_expected_of_an_answer_covers_nine_of_ten_lately() -> None:
    lengths = OutputLengths(prior=30)
    assert lengths.expected == 30
    for length in range(1, 21):
        lengths.note(length)
    assert lengths.expected == 30, "and is never less than what was configured"
    for length in range(41, 141):
        lengths.note(length)
    assert lengths.expected == 134
