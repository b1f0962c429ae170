"""What an engine says of its limits, of what it holds, and of who computes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
from engine_factory import ask, build_workshop, eventually
from gated_executor import GatedExecutor
from test_recurrent_states import RecurrentExecutor

from ferrum.assembly.engine_builder import EngineBuilder
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.errors import InternalError
from ferrum.core.events import RequestQueued
from ferrum.engine.engine import ContinuousBatchEngine
from ferrum.engine.snapshots import AdmissionSnapshot
from ferrum.execution.executor import ExecutorCapacity, ResourceAuthority
from ferrum.scheduling.scheduler import ContinuousBatchScheduler
from ferrum.scheduling.sequence import SequenceSpec
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.testing.scripted_executor import ScriptedExecutor

SNAPSHOT = AdmissionSnapshot(
    authority=ResourceAuthority.PLAN_RUNTIME,
    max_running_requests=3,
    max_num_batched_tokens=64,
    num_waiting=5,
    num_waiting_tokens=70,
    num_prefilling=1,
    num_decoding=2,
)


async def test_admission_tells_limits_and_phases() -> None:
    executor = GatedExecutor(ScriptedExecutor())
    scheduler = SchedulerConfig(max_running_requests=2, max_num_batched_tokens=64)
    workshop = build_workshop(executor, scheduler)
    asked = [
        asyncio.create_task(workshop.engine.infer(ask(f"r{number}", "abcd", max_tokens=20)))
        for number in range(4)
    ]
    await eventually(lambda: executor.is_held and len(workshop.recorder.of(RequestQueued)) == 4)
    executor.let_through(3)  # The first request, the second one, both.
    await eventually(lambda: executor.is_held and workshop.engine.status().num_waiting == 2)
    busy = AdmissionSnapshot(
        authority=executor.resource_authority,
        max_running_requests=2,
        max_num_batched_tokens=64,
        num_waiting=2,
        num_waiting_tokens=8,
        num_prefilling=0,
        num_decoding=2,
    )
    assert workshop.engine.admission() == busy
    executor.open()
    await asyncio.gather(*asked)
    idle = replace(busy, num_waiting=0, num_waiting_tokens=0, num_decoding=0)
    assert workshop.engine.admission() == idle
    await workshop.engine.shutdown(0.0)


@pytest.mark.parametrize(
    "wrong", [{"max_running_requests": 0}, {"max_num_batched_tokens": 0}, {"num_decoding": 3}]
)
def test_an_admission_that_cannot_be_is_our_bug(wrong: dict[str, int]) -> None:
    assert SNAPSHOT.num_running == 3
    with pytest.raises(InternalError):
        replace(SNAPSHOT, **wrong)


@pytest.mark.parametrize(("max_slots", "most"), [(3, 3), (100, 16), (None, 16)])
def test_slots_for_recurrent_states_limit_admission_and_are_told(max_slots: int | None, most: int) -> None:
    engine = EngineBuilder(EngineConfig(recurrent_state_max_slots=max_slots))
    built = engine.with_executor(RecurrentExecutor()).with_tokenizer(ByteTokenizer()).build()
    assert built.admission().max_running_requests == most
    assert ("ferrum_recurrent_state_slots 3.0" in built.metrics()) == (max_slots == 3)
    assert "ferrum_recurrent_state_slots_used 0.0" in built.metrics()
    built.generate([ask("a", max_tokens=3)])
    built.close()


def test_used_slots_are_counted_while_a_request_runs() -> None:
    executor, seen = RecurrentExecutor(), []
    built = EngineBuilder().with_executor(executor).with_tokenizer(ByteTokenizer()).build()
    executor.before_step = lambda plan: seen.append(built.metrics())
    built.generate([ask("a", max_tokens=3)])
    built.close()
    assert "ferrum_recurrent_state_slots_used 1.0" in seen[-1]


def test_a_model_without_state_has_no_series_of_it() -> None:
    engine = build_workshop().engine
    assert engine.status().recurrent_states is None
    assert "recurrent_state" not in engine.metrics()
    engine.close()


def test_attribution_is_the_executors_own() -> None:
    executor = ScriptedExecutor()
    engine = build_workshop(executor).engine
    attribution = engine.attribution()
    assert attribution.authority is executor.resource_authority
    assert attribution.keeps_same_tokens_law == executor.keeps_same_tokens_law
    plan = executor.resolved_plan
    assert attribution.identity == (plan.identity if plan else None)
    engine.close()


class SlowlySubmittingScheduler(ContinuousBatchScheduler):
    """Between a request's arrival in the queue and its publication there is time for many steps."""

    def submit(self, request: SequenceSpec, retry_after_s: float = 1.0) -> None:
        super().submit(request, retry_after_s)
        time.sleep(0.03)


def test_no_step_sees_a_request_before_it_is_published() -> None:
    """A step that named a request which nobody knows would fail everybody."""
    workshop = build_workshop(ScriptedExecutor(capacity=ExecutorCapacity(1024, 4, 512, 258)))
    engine = ContinuousBatchEngine(
        config=EngineConfig(),
        tokenizer=ByteTokenizer(),
        chat_encoder=None,
        executor=workshop.executor,
        resources=workshop.engine.resources,
        make_scheduler=SlowlySubmittingScheduler,
    )
    requests = [ask(f"r{number}", max_tokens=400) for number in range(4)]
    assert [len(result.token_ids) for result in engine.generate(requests)] == [400] * 4
    engine.close()
    workshop.engine.close()
