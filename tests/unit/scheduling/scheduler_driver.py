"""Runs a scheduler against a scripted executor without threads, and knows what each request must answer."""

from __future__ import annotations

from collections.abc import Sequence

from ferrum.cache.block_pool import BlockPool
from ferrum.cache.cache_manager import CacheManager
from ferrum.cache.prefix_cache import PrefixCache
from ferrum.core.config import SchedulerConfig
from ferrum.core.events import Event, Observers
from ferrum.core.ledger import LifecycleLedger
from ferrum.core.sampling_params import SamplingParams
from ferrum.core.step import SampledToken, SequencePart, StepPlan
from ferrum.execution.executor import ExecutorCapacity
from ferrum.scheduling.scheduler import ContinuousBatchScheduler
from ferrum.scheduling.sequence import SequenceSpec
from ferrum.testing.manual_clock import ManualClock
from ferrum.testing.scripted_executor import ScriptedExecutor


def spec(
    request_id: str, num_prompt_tokens: int, max_tokens: int = 4, *, is_budget_explicit: bool = True
) -> SequenceSpec:
    prompt_ids = tuple(range(1, num_prompt_tokens + 1))
    return SequenceSpec(request_id, prompt_ids, max_tokens, is_budget_explicit, SamplingParams(), seed=5)


class SchedulerDriver:
    """One scheduler, its cache and an executor whose token depends on the whole history it reads back."""

    def __init__(
        self,
        config: SchedulerConfig,
        num_blocks: int = 16,
        block_tokens: int = 4,
        *,
        caches_prefixes: bool = False,
    ) -> None:
        self.events: list[Event] = []
        self.ledger = LifecycleLedger()
        self.executor = ScriptedExecutor(
            capacity=ExecutorCapacity(num_blocks, block_tokens, num_blocks * block_tokens, 258)
        )
        store = self.executor.block_store
        assert store is not None
        prefixes = PrefixCache("scripted", block_tokens, store) if caches_prefixes else None
        self.cache = CacheManager(BlockPool(num_blocks, self.ledger), block_tokens, prefixes)
        self.clock = ManualClock()
        self.scheduler = ContinuousBatchScheduler(config, self.cache, Observers((self,)), self.clock)
        self.outputs: dict[str, list[int]] = {}
        self.specs: dict[str, SequenceSpec] = {}
        self.finished: list[str] = []

    def on(self, event: Event) -> None:
        self.events.append(event)

    def submit(self, request: SequenceSpec) -> None:
        self.scheduler.submit(request)
        self.specs[request.request_id] = request
        self.outputs[request.request_id] = []

    def cancel(self, request_id: str) -> None:
        self._finish(request_id)

    @property
    def active(self) -> list[str]:
        return [request_id for request_id in self.specs if request_id not in self.finished]

    def step(self) -> StepPlan | None:
        plan = self.scheduler.schedule()
        if plan is None:
            return None
        self.take(plan.parts, self.executor.execute(plan).tokens)
        return plan

    def take(self, parts: Sequence[SequencePart], tokens: Sequence[SampledToken]) -> None:
        """What a step computed and chose; requests that have all their tokens end."""
        self.scheduler.commit(parts, tokens)
        for token in tokens:
            output = self.outputs[token.request_id]
            output.append(token.token_id)
            if len(output) == self.specs[token.request_id].max_tokens:
                self._finish(token.request_id)

    def run(self, most_steps: int = 2000) -> list[StepPlan]:
        plans = []
        while (plan := self.step()) is not None:
            plans.append(plan)
            assert len(plans) < most_steps, "requests do not come to an end"
        return plans

    def assert_nothing_is_held(self) -> None:
        assert self.ledger.outstanding() == {}
        assert (self.cache.num_used_blocks, self.cache.num_requests) == (0, 0)
        assert (self.scheduler.num_running, self.scheduler.num_waiting) == (0, 0)
        assert not self.scheduler.has_work

    def _finish(self, request_id: str) -> None:
        self.scheduler.finish(request_id)
        self.ledger.close(request_id)
        self.finished.append(request_id)


def solo_output(request: SequenceSpec) -> list[int]:
    """What the request answers when it runs alone in big steps."""
    driver = SchedulerDriver(SchedulerConfig(), num_blocks=64)
    driver.submit(request)
    driver.run()
    return driver.outputs[request.request_id]
