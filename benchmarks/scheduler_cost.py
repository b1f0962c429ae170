"""What one step costs the scheduler when 256 requests run and 10,000 wait, without a model.

    python benchmarks/scheduler_cost.py

Requests end and others take their place all the time. Prints milliseconds of Python of a step: of planning
it, of noting what came out, and of ending and replacing requests.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Sequence

from ferrum.cache.block_pool import BlockPool
from ferrum.cache.cache_manager import CacheManager
from ferrum.core.config import SchedulerConfig
from ferrum.core.ledger import LifecycleLedger
from ferrum.core.sampling_params import SamplingParams
from ferrum.core.step import SampledToken
from ferrum.plan.plan_work import AttentionWork, PlanWork
from ferrum.scheduling.scheduler import ContinuousBatchScheduler
from ferrum.scheduling.sequence import SequenceSpec
from ferrum.scheduling.step_pace import StepPace

# About a model of 135 million parameters, at 5 ms a step and 0.2 ms a token.
WORK = PlanWork(90_000_000, 106_000_000, 28_000_000, (AttentionWork(None, 23_040, 34_560),))
BLOCK_TOKENS = 32


class Simulation:
    """A scheduler, its requests, and a machine that chooses tokens without computing. Mutable throughout."""

    def __init__(self, num_running: int, num_waiting: int) -> None:
        config = SchedulerConfig(
            max_running_requests=num_running,
            max_waiting_requests=num_waiting,
            max_waiting_tokens=100_000_000,
            max_num_batched_tokens=2 * num_running,
        )
        self._ledger = LifecycleLedger()
        cache = CacheManager(BlockPool(num_running * 64, self._ledger), BLOCK_TOKENS)
        self._scheduler = ContinuousBatchScheduler(config, cache, pace=StepPace(WORK))
        self._draw = random.Random(1)
        self._left: dict[str, int] = {}
        for _ in range(num_running + num_waiting):
            self._submit()

    @property
    def sizes(self) -> tuple[int, int]:
        """Requests that run, and that wait."""
        return self._scheduler.num_running, self._scheduler.num_waiting

    def step(self) -> tuple[float, float, float]:
        """Seconds of planning, of noting the outcome, of ending and replacing requests."""
        began = time.perf_counter()
        plan = self._scheduler.schedule()
        planned = time.perf_counter()
        assert plan is not None
        tokens = [SampledToken(part.request_id, 1) for part in plan.parts if part.choices]
        seconds = 0.005 + 0.0002 * plan.num_tokens
        noting = time.perf_counter()
        self._scheduler.learn(plan.parts, seconds)
        self._scheduler.commit(plan.parts, tokens)
        noted = time.perf_counter()
        self._end_and_replace(tokens)
        return planned - began, noted - noting, time.perf_counter() - noted

    def _end_and_replace(self, tokens: Sequence[SampledToken]) -> None:
        for token in tokens:
            self._left[token.request_id] -= 1
            if not self._left[token.request_id]:
                del self._left[token.request_id]
                self._scheduler.finish(token.request_id)
                self._ledger.close(token.request_id)
                self._submit()

    def _submit(self) -> None:
        request_id = f"r{self._draw.getrandbits(64):x}"
        prompt_ids = tuple(self._draw.randrange(50_000) for _ in range(self._draw.randrange(8, 200)))
        self._left[request_id] = self._draw.randrange(16, 400)
        self._scheduler.submit(
            SequenceSpec(request_id, prompt_ids, self._left[request_id], True, SamplingParams(), seed=1)
        )


def _line(name: str, seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    late = ordered[int(0.99 * len(ordered))]
    return f"{name}: median {statistics.median(ordered) * 1e3:.2f} ms, p99 {late * 1e3:.2f}"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--running", type=int, default=256)
    arguments.add_argument("--waiting", type=int, default=10_000)
    arguments.add_argument("--steps", type=int, default=1_000)
    given = arguments.parse_args()
    simulation = Simulation(given.running, given.waiting)
    while simulation.sizes[0] < given.running:
        simulation.step()
    times = [simulation.step() for _ in range(given.steps)]
    running, waiting = simulation.sizes
    print(f"{running} running, {waiting} waiting, {given.steps} steps")
    for index, name in enumerate(("plan", "note the outcome", "end and replace")):
        print(_line(name, [each[index] for each in times]))
    print(_line("all", [sum(each) for each in times]))


if __name__ == "__main__":
    main()
