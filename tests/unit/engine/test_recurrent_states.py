"""Engines whose model keeps a recurrent state of each sequence, in a slot that the engine manages."""

from __future__ import annotations

import threading
import time

import pytest
from engine_factory import Recorder, ask, eventually

from ferrum.assembly.engine_builder import EngineBuilder
from ferrum.cache.block_pool import BlockPool
from ferrum.cache.cache_manager import CacheManager
from ferrum.cache.recurrent_state import RECURRENT_STATE_SLOT, RecurrentStateManager
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.errors import InternalError
from ferrum.core.events import RequestPreempted
from ferrum.core.ledger import LifecycleLedger
from ferrum.core.request import FinishReason, InferenceRequest, InferenceResult
from ferrum.core.step import SampledToken, SequencePart, StepPlan, StepResult
from ferrum.engine.engine import ContinuousBatchEngine
from ferrum.engine.engine_resources import EngineResources
from ferrum.execution.executor import ExecutorCapacity, ResourceAuthority
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.testing.scripted_executor import ScriptedExecutor, letter_of_history


class RecurrentExecutor(ScriptedExecutor):
    """Its answers depend on what the state slot holds: every token of the sequence, and no other's."""

    def __init__(self, num_blocks: int = 64) -> None:
        capacity = ExecutorCapacity(num_blocks, 4, 256, 258, recurrent_state_bytes=100)
        super().__init__(capacity=capacity, resource_authority=ResourceAuthority.ENGINE_MANAGED)
        self.states: dict[int, list[int]] = {}
        self.most_slots = 0

    def execute(self, plan: StepPlan) -> StepResult:
        self.num_steps += 1
        if self.before_step is not None:
            self.before_step(plan)
        slots = {part.state_slot for part in plan.parts}
        assert len(slots) == len(plan.parts)
        self.most_slots = max(self.most_slots, len(slots))
        return StepResult(tuple(token for part in plan.parts for token in self._compute(part)))

    def _compute(self, part: SequencePart) -> tuple[SampledToken, ...]:
        assert part.state_slot is not None
        tokens = self.states.setdefault(part.state_slot, [])
        assert part.start_position <= len(tokens), f"{part.request_id} is not what its slot holds"
        tokens[part.start_position :] = part.token_ids
        return tuple(
            SampledToken(part.request_id, letter_of_history(part.request_id, tuple(tokens), choice))
            for choice in part.choices
        )


def _engine(
    executor: RecurrentExecutor, recorder: Recorder | None = None, max_slots: int | None = 2
) -> ContinuousBatchEngine:
    scheduler = SchedulerConfig(prefill_step_chunk=3, expected_output_tokens=1)
    config = EngineConfig(scheduler=scheduler, recurrent_state_max_slots=max_slots)
    builder = EngineBuilder(config).with_executor(executor).with_tokenizer(ByteTokenizer())
    return builder.with_observer(recorder or Recorder()).build()


def _states(engine: ContinuousBatchEngine) -> RecurrentStateManager:
    states = engine.resources.recurrent_states
    assert states is not None
    return states


def _requests() -> list[InferenceRequest]:
    return [ask(f"r{number}", "prompt " * (number % 4 + 1), max_tokens=None) for number in range(8)]


def _limited(requests: list[InferenceRequest], max_tokens: int) -> list[InferenceRequest]:
    return [ask(request.request_id, request.prompt.text, max_tokens) for request in requests]


def _texts(results: list[InferenceResult]) -> list[str]:
    return [result.text for result in results]


def _alone(requests: list[InferenceRequest]) -> list[str]:
    engine = _engine(RecurrentExecutor())
    texts = [text for request in requests for text in _texts(engine.generate([request]))]
    engine.close()
    return texts


def _assert_nothing_is_held(engine: ContinuousBatchEngine) -> None:
    ledger = _states(engine).ledger
    assert ledger.outstanding() == {}
    assert (ledger.num_open_owners, ledger.num_underflows, ledger.num_dropped_leases) == (0, 0, 0)
    stats = _states(engine).stats
    assert (stats.used_slots, stats.used_bytes, stats.num_failures) == (0, 0, 0)


@pytest.mark.parametrize("max_slots", [1, 2, None])
def test_no_more_requests_run_than_there_are_slots(max_slots: int | None) -> None:
    requests = _limited(_requests(), 9)
    executor = RecurrentExecutor()
    executor.before_step = lambda plan: time.sleep(0.002)  # None ends before the last one came.
    engine = _engine(executor, max_slots=max_slots)
    assert _texts(engine.generate(requests)) == _alone(requests)
    assert executor.most_slots == (max_slots or len(requests))
    assert set(executor.states) == set(range(max_slots or len(requests)))
    engine.close()
    _assert_nothing_is_held(engine)


def test_a_preempted_request_gives_its_slot_back_and_comes_to_the_same_tokens() -> None:
    requests = [ask(f"r{number}", "p" * 10, max_tokens=None) for number in range(3)]
    executor, recorder = RecurrentExecutor(num_blocks=10), Recorder()
    executor.before_step = lambda plan: time.sleep(0.001)  # None ends before the last one came.
    engine = _engine(executor, recorder)
    results = engine.generate(requests)
    assert recorder.of(RequestPreempted)
    assert all(len(result.token_ids) == 30 for result in results)
    assert all(result.finish_reason is FinishReason.LENGTH for result in results)
    assert _texts(results) == _alone(_limited(requests, 30))
    engine.close()
    _assert_nothing_is_held(engine)


def _wait(event: threading.Event) -> None:
    assert event.wait(5.0)


async def test_a_cancelled_request_gives_its_slot_back() -> None:
    executor, may_go_on = RecurrentExecutor(), threading.Event()
    engine = _engine(executor, max_slots=1)
    executor.before_step = lambda plan: None if executor.num_steps < 9 else _wait(may_go_on)
    stream = await engine.open_stream(ask("a", max_tokens=None))
    assert await anext(aiter(stream))
    assert _states(engine).ledger.outstanding()["a"][RECURRENT_STATE_SLOT] == 1
    waiting = await engine.open_stream(ask("b", max_tokens=2))
    assert engine.cancel("a")
    may_go_on.set()
    async for _ in waiting:
        pass
    await eventually(lambda: _states(engine).stats.used_slots == 0)
    await engine.shutdown(0.0)
    _assert_nothing_is_held(engine)


def test_a_model_with_state_needs_somebody_who_manages_it() -> None:
    executor = RecurrentExecutor()
    cache = CacheManager(BlockPool(8, LifecycleLedger()), 4)
    with pytest.raises(InternalError, match="manages none"):
        ContinuousBatchEngine(
            config=EngineConfig(),
            tokenizer=ByteTokenizer(),
            chat_encoder=None,
            executor=executor,
            resources=EngineResources(ResourceAuthority.ENGINE_MANAGED, cache),
        )


def test_a_model_without_state_takes_no_slots() -> None:
    executor = ScriptedExecutor(resource_authority=ResourceAuthority.ENGINE_MANAGED, keeps_plans=True)
    engine = EngineBuilder().with_executor(executor).with_tokenizer(ByteTokenizer()).build()
    engine.generate([ask()])
    assert {part.state_slot for plan in executor.plans for part in plan.parts} == {None}
    engine.close()
    _assert_nothing_is_held(engine)
