"""A request that gave itself a time ends by then, wherever it is, and nobody else notices."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from engine_factory import Workshop, ask, build_workshop, eventually, running
from step_gate import StepGate

from ferrum.core.config import SchedulerConfig
from ferrum.core.errors import DeadlineExceeded, InvalidRequest
from ferrum.core.events import RequestFinished, RequestQueued
from ferrum.core.request import FinishReason, InferenceRequest
from ferrum.engine.active_request import ActiveRequest
from ferrum.engine.deadlines import Deadlines
from ferrum.testing.manual_clock import ManualClock
from ferrum.testing.scripted_executor import ScriptedExecutor


def timed(request_id: str, timeout_s: float, **more: object) -> InferenceRequest:
    return replace(ask(request_id, **more), timeout_s=timeout_s)


def gated(max_running: int = 4) -> tuple[Workshop, StepGate, ManualClock]:
    gate, clock = StepGate(), ManualClock()
    executor = ScriptedExecutor(before_step=gate, keeps_plans=True)
    scheduler = SchedulerConfig(max_running_requests=max_running, prefill_step_chunk=4)
    return build_workshop(executor, scheduler, clock=clock), gate, clock


async def test_one_that_expires_in_the_queue_is_refused_without_work() -> None:
    workshop, gate, clock = gated(max_running=1)
    async with running(workshop):
        first = asyncio.create_task(workshop.engine.infer(ask("first", max_tokens=20)))
        await eventually(gate.is_waiting.is_set)
        late = asyncio.create_task(workshop.engine.infer(timed("late", 2.0)))
        await eventually(lambda: len(workshop.recorder.of(RequestQueued)) == 2)
        clock.advance(2.0)
        gate.let_through(1)
        with pytest.raises(DeadlineExceeded) as caught:
            await late
        assert (caught.value.request_id, caught.value.timeout_s) == ("late", 2.0)
        gate.let_through(100)
        assert (await first).finish_reason is FinishReason.LENGTH
    computed = {part.request_id for plan in workshop.executor.plans for part in plan.parts}
    assert computed == {"first"}


async def test_one_that_expires_while_its_prompt_is_computed_gets_the_error_too() -> None:
    workshop, gate, clock = gated()
    async with running(workshop):
        late = asyncio.create_task(workshop.engine.infer(timed("late", 1.0, prompt="x" * 40)))
        gate.let_through(2)
        await eventually(lambda: workshop.executor.num_steps == 3)
        clock.advance(1.0)
        gate.let_through(1)
        with pytest.raises(DeadlineExceeded):
            await late
        assert workshop.cache.num_used_blocks == 0


async def test_one_that_expires_while_it_answers_gets_what_there_is() -> None:
    async with running(build_workshop()) as solo:
        whole = await solo.engine.infer(ask("late", max_tokens=50))
    workshop, gate, clock = gated()
    async with running(workshop):
        stream = await workshop.engine.open_stream(timed("late", 3.0, max_tokens=50))
        gate.let_through(5)
        await eventually(lambda: workshop.executor.num_steps == 6)
        clock.advance(3.0)
        gate.let_through(1)
        chunks = [chunk async for chunk in stream]
        result = chunks[-1].result
        assert result is not None
        assert result.finish_reason is FinishReason.TIMEOUT
        assert 0 < len(result.text) < 50
        assert whole.text.startswith(result.text)
        assert "".join(chunk.text for chunk in chunks) == result.text
        assert workshop.cache.num_used_blocks == 0


async def test_neighbours_of_one_that_expires_get_their_own_tokens() -> None:
    async with running(build_workshop()) as solo:
        alone = await solo.engine.infer(ask("stays", prompt="neighbour", max_tokens=20))
    workshop, gate, clock = gated()
    async with running(workshop):
        stays = asyncio.create_task(workshop.engine.infer(ask("stays", prompt="neighbour", max_tokens=20)))
        leaves = asyncio.create_task(workshop.engine.infer(timed("leaves", 1.0, max_tokens=20)))
        await eventually(lambda: len(workshop.recorder.of(RequestQueued)) == 2)
        gate.let_through(6)
        await eventually(lambda: workshop.executor.num_steps == 7)
        clock.advance(1.0)
        gate.let_through(100)
        assert (await leaves).finish_reason is FinishReason.TIMEOUT
        assert await stays == alone


async def test_one_that_is_in_time_is_left_alone_and_counted_once() -> None:
    workshop, gate, clock = gated()
    async with running(workshop):
        gate.let_through(100)
        assert (await workshop.engine.infer(timed("a", 5.0))).finish_reason is FinishReason.LENGTH
        clock.advance(100.0)
        assert (await workshop.engine.infer(timed("a", 5.0))).finish_reason is FinishReason.LENGTH
    assert len(workshop.recorder.of(RequestFinished)) == 2


async def test_timeouts_are_counted_as_such() -> None:
    workshop, gate, clock = gated()
    async with running(workshop):
        late = asyncio.create_task(workshop.engine.infer(timed("late", 1.0)))
        await eventually(gate.is_waiting.is_set)
        clock.advance(1.0)
        gate.let_through(10)
        with pytest.raises(DeadlineExceeded):
            await late
        assert 'requests_finished_total{finish_reason="timeout"} 1.0' in workshop.engine.metrics()


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf"), 86_401, "5", True, [1]])
def test_a_timeout_that_is_no_time_is_refused_by_name(timeout_s: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        replace(ask(), timeout_s=timeout_s)
    assert caught.value.param == "timeout_s"


def test_requests_that_ended_early_are_not_kept_until_their_time() -> None:
    deadlines = Deadlines()
    for _ in range(1000):
        request = ActiveRequest(None, None, None, 0.0, None, timeout_s=1e4)
        deadlines.add(request)
        deadlines.discard(request)
    assert len(deadlines._heap) < 100
    assert deadlines.take_expired(2e4) == []
