"""A hypothesis machine that does to an engine whatever its callers, its clock and its executor may do."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from engine_factory import Workshop, build_workshop
from gated_executor import GatedExecutor
from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from teachable_drafter import TeachableDrafter

from ferrum.cache.prefix_scope import PrefixScope
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.drafting import DraftWish
from ferrum.core.errors import (
    DeadlineExceeded,
    EngineClosed,
    InternalError,
    PrefixPinnedAlready,
    QueueFull,
    ResourceExhausted,
)
from ferrum.core.events import (
    RequestFinished,
    RequestPreempted,
    RequestQueued,
    RequestRejected,
    StepFailed,
)
from ferrum.core.request import FinishReason, InferenceRequest, InferenceResult, TokenPrompt
from ferrum.core.sampling_params import SamplingParams
from ferrum.core.scheduling_policy import SchedulingPolicy
from ferrum.core.speculation_config import SpeculationConfig, SpeculationMethod
from ferrum.execution.executor import Executor
from ferrum.scheduling.pinned_prefixes import PinnedPrefix, PinnedPrefixes
from ferrum.testing.manual_clock import ManualClock

# Prompts share beginnings of these, so that they meet in the prefix cache.
ROOTS = (tuple(range(3, 40)), tuple(range(60, 20, -1)))

Outcome = InferenceResult | BaseException

# Hypothesis tries every rule as often as another; what ends things must be rarer than what begins them.
seldom = st.sampled_from([False, False, True])

requests = st.builds(
    lambda root, shared, suffix, sampling, **turn: InferenceRequest(
        "unnamed", TokenPrompt((*root[:shared], *suffix)), sampling, **turn
    ),
    root=st.sampled_from(ROOTS),
    shared=st.integers(1, 20),
    suffix=st.lists(st.integers(3, 60), max_size=4),
    sampling=st.builds(
        SamplingParams,
        max_tokens=st.one_of(st.none(), st.none(), st.integers(1, 16)),
        temperature=st.sampled_from([0.0, 1.0]),
        seed=st.integers(0, 3),
    ),
    timeout_s=st.sampled_from([None, None, None, 2, 5]),
    priority=st.integers(-2, 2),
    tenant=st.sampled_from([None, "a", "b"]),
)


class EngineMachine(RuleBasedStateMachine):
    """A subclass says which executor, how large, and what a request answers when it is alone."""

    max_model_len = 40
    pool_blocks = st.integers(10, 20)

    def make_executor(self, num_blocks: int) -> Executor:
        raise NotImplementedError

    def solo_tokens(self, request: InferenceRequest) -> tuple[int, ...]:
        """All the tokens of a request that nobody disturbs."""
        raise NotImplementedError

    @initialize(
        pool_blocks=st.data(),
        max_running=st.integers(2, 6),
        max_waiting=st.sampled_from([3, 50, 50]),
        chunk=st.integers(2, 40),
        expected=st.integers(1, 4),
        caches_prefixes=st.booleans(),
        is_fair=st.booleans(),
        policy=st.sampled_from(SchedulingPolicy),
        num_drafts=st.sampled_from([0, 0, 1, 4, 30]),
        until_active=st.sampled_from([0, 0, 3]),
    )
    def build(
        self,
        pool_blocks: st.DataObject,
        max_running: int,
        max_waiting: int,
        chunk: int,
        expected: int,
        caches_prefixes: bool,
        is_fair: bool,
        policy: SchedulingPolicy,
        num_drafts: int,
        until_active: int,
    ) -> None:
        scheduler = SchedulerConfig(
            max_running_requests=max_running,
            max_waiting_requests=max_waiting,
            prefill_step_chunk=chunk,
            prefill_first_until_active=until_active,
            expected_output_tokens=expected,
            fair_tenants=is_fair,
            policy=policy,
        )
        config = EngineConfig(
            scheduler=scheduler,
            prefix_cache=caches_prefixes,
            max_model_len=self.max_model_len,
            stall_after_s=86_400.0,
            speculation=SpeculationConfig(SpeculationMethod.NGRAM, num_tokens=max(1, num_drafts)),
        )
        self.is_by_priority = policy is SchedulingPolicy.PRIORITY
        self.clock = ManualClock()
        self.executor = GatedExecutor(self.make_executor(pool_blocks.draw(self.pool_blocks)))
        self.drafter = TeachableDrafter(self._mostly_right) if num_drafts else None
        self.workshop: Workshop = build_workshop(
            self.executor,
            config=config,
            clock=self.clock,
            drafter=self.drafter,
        )
        self.solo_cache: dict[str, tuple[int, ...]] = {}
        self.loop = asyncio.new_event_loop()
        self.requests: dict[str, InferenceRequest] = {}
        self.tasks: dict[str, asyncio.Task[InferenceResult]] = {}
        self.cancelled: set[str] = set()
        self.left: set[str] = set()
        self.is_closed = False

    @rule(comers=st.lists(requests, min_size=1, max_size=4), is_streamed=st.booleans())
    def submit(self, comers: list[InferenceRequest], is_streamed: bool) -> None:
        for comer in comers:
            name = f"r{len(self.requests)}"
            request = replace(comer, request_id=name, priority=comer.priority if self.is_by_priority else 0)
            work = self._stream(request) if is_streamed else self._whole(request)
            self.requests[name] = request
            self.tasks[name] = self.loop.create_task(work)
            self._run(self._until(lambda: self.tasks[name].done() or name in self._queued()))  # noqa: B023

    @rule(num_calls=st.integers(1, 15))
    def step(self, num_calls: int) -> None:
        self.executor.let_through(num_calls)
        self._settle()

    @rule(num_calls=st.integers(5, 30))
    def step_on(self, num_calls: int) -> None:
        self.step(num_calls)

    @rule(pick=st.integers(0, 1000), is_meant=seldom)
    def cancel_by_id(self, pick: int, is_meant: bool) -> None:
        name = self._pick(pick)
        if name is None or not is_meant:
            return
        self.cancelled.add(name)
        self.workshop.engine.cancel(name)

    @rule(pick=st.integers(0, 1000), is_meant=seldom)
    def leave(self, pick: int, is_meant: bool) -> None:
        """The caller's task is cancelled, as a server does when a client disconnects."""
        name = self._pick(pick)
        if name is None or not is_meant:
            return
        self.left.add(name)
        self.tasks[name].cancel()
        self._run(asyncio.sleep(0))

    @rule(pick=st.integers(0, 1000), is_meant=seldom)
    def poison(self, pick: int, is_meant: bool) -> None:
        name = self._pick(pick)
        if name is not None and is_meant:
            self.executor.poisoned.add(name)

    @rule(pick=st.integers(0, 1000), priority=st.integers(-3, 3))
    def update_priority(self, pick: int, priority: int) -> None:
        name = self._pick(pick)
        if name is not None and self.is_by_priority:
            self.workshop.engine.update_priority(name, priority)

    @rule(pick=st.integers(0, 1000))
    def pin(self, pick: int) -> None:
        """Whole blocks of somebody's prompt, as far as they are there."""
        if not self.requests or self.is_closed:
            return
        prompt = list(self.requests.values())[pick % len(self.requests)].prompt
        assert isinstance(prompt, TokenPrompt)
        try:
            self.workshop.engine._steps.with_pins(lambda pins: self._pin(pins, prompt.token_ids))
        except (ResourceExhausted, PrefixPinnedAlready) as refusal:
            event(f"pin: {type(refusal).__name__}")

    def _pin(self, pins: PinnedPrefixes, token_ids: tuple[int, ...]) -> None:
        num_cached = pins.num_cached(PrefixScope(), token_ids)
        if num_cached:
            pin = PinnedPrefix(f"p{num_cached}", token_ids[:num_cached], PrefixScope())
            assert pins.pin(pin, self.max_model_len) == ()
            event("pinned")

    @rule(pick=st.integers(0, 1000), is_meant=seldom)
    def unpin(self, pick: int, is_meant: bool) -> None:
        pins = self.workshop.engine.pins
        if is_meant and pins.pins:
            pins.unpin(pins.pins[pick % len(pins.pins)].name)

    @rule(is_meant=seldom)
    def stumble(self, is_meant: bool) -> None:
        """The next call of the executor fails, whoever is in it."""
        self.executor.fail_next = is_meant

    @rule(seconds=st.integers(1, 4))
    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(drain_s=st.sampled_from([0.0, 10.0]), is_meant=seldom)
    def shut_down(self, drain_s: float, is_meant: bool) -> None:
        if is_meant and len(self.requests) > 3 and not self.is_closed:
            self.is_closed = True
            self.executor.open()
            self._run(self.workshop.engine.shutdown(drain_s))

    @invariant()
    def blocks_are_held_or_free(self) -> None:
        if not hasattr(self, "workshop"):
            return
        self._settle()
        cache = self.workshop.cache
        held = {block for table in cache._tables.values() for block in table.blocks}
        assert all(cache._pool.is_held(block) for block in held)
        assert len(held) == cache.num_used_blocks
        assert cache.num_free_blocks == cache.num_blocks - len(held)
        status = self.workshop.engine.status()
        active = len(self._queued()) - len(self._ended())
        assert status.num_running + status.num_waiting == active

    def teardown(self) -> None:
        if not hasattr(self, "workshop"):
            return
        try:
            self.executor.open()
            outcomes = self._run(self._outcomes())
            self._run(self.workshop.engine.shutdown(5.0))
            for name, outcome in zip(self.tasks, outcomes, strict=True):
                self._check(self.requests[name], outcome)
            ends = Counter(self._ended())
            assert set(ends) == set(self._queued()), "who waited has ended"
            assert set(ends.values()) <= {1}, "and once"
            self.workshop.assert_nothing_is_held()
            self._say_what_happened(outcomes)
            if self.drafter is not None:
                event(f"drafted tokens: {min(self.drafter.num_drafted, 50) // 10}x10")
                assert self.drafter.is_closed
            assert not self.workshop.engine._scheduler.has_work
        finally:
            self.executor.open()
            self._run(self.workshop.engine.shutdown(0.0))
            self._run(self.loop.shutdown_default_executor())
            self.loop.close()

    def _say_what_happened(self, outcomes: list[Outcome]) -> None:
        """For ``pytest --hypothesis-show-statistics``: how often the machine came where it should."""
        recorder = self.workshop.recorder
        for kind in (RequestPreempted, StepFailed, RequestRejected):
            if recorder.of(kind):
                event(kind.__name__)
        for outcome in outcomes:
            if isinstance(outcome, InferenceResult):
                event(f"finish reason {outcome.finish_reason}")
                if outcome.usage.cached_tokens:
                    event("prefix hit")
            else:
                event(type(outcome).__name__)
        if self.is_closed:
            event("shut down")

    def _check(self, request: InferenceRequest, outcome: Outcome) -> None:
        name = request.request_id
        match outcome:
            case InferenceResult(finish_reason=FinishReason.LENGTH):
                assert outcome.token_ids == self.solo_tokens(request), name
            case InferenceResult(finish_reason=FinishReason.CANCELLED):
                assert name in self.cancelled or self.is_closed
                assert _is_beginning(outcome.token_ids, self.solo_tokens(request)), name
            case InferenceResult(finish_reason=FinishReason.TIMEOUT):
                assert request.timeout_s is not None
                assert outcome.token_ids
                assert _is_beginning(outcome.token_ids, self.solo_tokens(request)), name
            case DeadlineExceeded():
                assert request.timeout_s is not None
            case InternalError():
                # A step that only stumbled is repeated, and costs nobody anything.
                assert name in self.executor.failed_twice
            case asyncio.CancelledError():
                assert name in self.left
            case EngineClosed():
                assert self.is_closed
            case QueueFull():
                assert outcome.waiting >= outcome.limit
            case _:
                raise AssertionError(f"{name} ended with {outcome!r}")

    async def _outcomes(self) -> list[Outcome]:
        async with asyncio.timeout(20):
            return await asyncio.gather(*self.tasks.values(), return_exceptions=True)

    async def _whole(self, request: InferenceRequest) -> InferenceResult:
        return await self.workshop.engine.infer(request)

    async def _stream(self, request: InferenceRequest) -> InferenceResult:
        pieces = []
        async for chunk in self.workshop.engine.infer_stream(request):
            pieces.append(chunk.text)
            if chunk.result is not None:
                assert "".join(pieces) == chunk.result.text
                return chunk.result
        raise AssertionError("a stream ends with its result")

    def _mostly_right(self, wish: DraftWish) -> list[int]:
        """The tokens that the request gets alone; now and then another."""
        name = wish.request_id
        request = self.requests[name]
        if name not in self.solo_cache:
            self.solo_cache[name] = self.solo_tokens(request)
        assert isinstance(request.prompt, TokenPrompt)
        start = len(wish.token_ids) - len(request.prompt.token_ids)
        ahead = enumerate(self.solo_cache[name][start:], len(wish.token_ids))
        return [token_id if place % 5 else 7 for place, token_id in ahead]

    def _pick(self, pick: int) -> str | None:
        """One of those who have no answer yet."""
        alive = [name for name, task in self.tasks.items() if not task.done()]
        return alive[pick % len(alive)] if alive else None

    def _queued(self) -> set[str]:
        return {event.request_id for event in self.workshop.recorder.of(RequestQueued)}

    def _ended(self) -> list[str]:
        return [event.request_id for event in self.workshop.recorder.of(RequestFinished)]

    def _settle(self) -> None:
        """Until the engine waits for a permit, or for work, and its callers have heard what it said."""
        self._run(self._until(self._is_settled))

    def _is_settled(self) -> bool:
        ended = self._ended()
        is_parked = self.executor.is_held or len(self._queued()) == len(ended)
        return is_parked and all(self.tasks[name].done() for name in ended)

    async def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, "does not happen"
            await asyncio.sleep(0.0003)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)


def _is_beginning(tokens: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    return tokens == whole[: len(tokens)]
