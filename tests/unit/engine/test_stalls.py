"""An engine that is stuck says so: to those who ask, to those who wait, and to those who come."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping

import pytest
from engine_factory import Workshop, ask, build_workshop, eventually, running
from step_gate import StepGate

from ferrum.core.config import EngineConfig
from ferrum.core.errors import EngineStalled, InternalError
from ferrum.core.events import EngineFailed, RequestFinished, RequestQueued
from ferrum.core.request import FinishReason
from ferrum.core.step import StepPlan
from ferrum.engine import step_loop
from ferrum.engine.stall_watch import StallWatch
from ferrum.runtimes.protocol import StepAborted
from ferrum.testing.manual_clock import ManualClock
from ferrum.testing.scripted_executor import ScriptedExecutor

SHORT = EngineConfig(stall_after_s=1.0)


def gated() -> tuple[Workshop, StepGate, ManualClock]:
    gate, clock = StepGate(), ManualClock()
    return build_workshop(ScriptedExecutor(before_step=gate), config=SHORT, clock=clock), gate, clock


async def test_callers_of_a_step_that_does_not_end_get_an_error_and_so_do_new_ones() -> None:
    workshop, gate, clock = gated()
    async with running(workshop):
        whole = asyncio.create_task(workshop.engine.infer(ask("whole")))
        await eventually(gate.is_waiting.is_set)
        stream = await workshop.engine.open_stream(ask("stream"))
        gate.let_through(3)
        assert (await anext(stream)).text
        await eventually(gate.is_waiting.is_set)
        assert workshop.engine.death_reason is None
        clock.advance(1.5)
        assert "no step for 2 s" in str(workshop.engine.death_reason)
        assert not workshop.engine.status().is_ready
        with pytest.raises(EngineStalled):
            await asyncio.wait_for(whole, 5)
        with pytest.raises(EngineStalled):
            async for _ in stream:
                pass
        with pytest.raises(EngineStalled):
            await workshop.engine.infer(ask("new"))
        assert len(workshop.recorder.of(EngineFailed)) == 1
        assert "ferrum_engine_failures_total 1.0" in workshop.engine.metrics()
        gate.let_through(100)
        await eventually(lambda: workshop.engine.death_reason is None)
        assert (await workshop.engine.infer(ask("again"))).finish_reason is FinishReason.LENGTH
    ended = [event.reason for event in workshop.recorder.of(RequestFinished)]
    assert ended == [FinishReason.ERROR, FinishReason.ERROR, FinishReason.LENGTH]


async def test_an_engine_stuck_between_steps_with_its_lock_held_is_noticed_too() -> None:
    executor = ScriptedExecutor(latency_s=0.001)
    workshop = build_workshop(executor, config=SHORT)
    release = threading.Event()
    async with running(workshop):
        stream = await workshop.engine.open_stream(ask(max_tokens=200))
        await anext(stream)
        schedule = workshop.engine._scheduler.schedule

        def hang(drafts: Mapping[str, tuple[int, ...]]) -> StepPlan | None:
            release.wait(10)
            return schedule(drafts)

        workshop.engine._scheduler.schedule = hang
        with pytest.raises(EngineStalled):
            async for _ in stream:
                pass
        assert workshop.engine.death_reason is not None
        with pytest.raises(EngineStalled):
            await workshop.engine.infer(ask("new"))
        workshop.engine._scheduler.schedule = schedule
        release.set()
        await eventually(lambda: workshop.engine.death_reason is None)


async def test_steps_that_are_given_up_again_and_again_are_no_progress() -> None:
    def give_up(plan: StepPlan) -> None:
        clock.advance(0.01)
        raise StepAborted

    clock = ManualClock()
    workshop = build_workshop(ScriptedExecutor(before_step=give_up), config=SHORT, clock=clock)
    async with running(workshop):
        with pytest.raises(EngineStalled):
            await asyncio.wait_for(workshop.engine.infer(ask()), 5)


async def test_work_however_long_is_no_stall() -> None:
    clock = ManualClock()
    executor = ScriptedExecutor(before_step=lambda plan: clock.advance(0.9))
    async with running(build_workshop(executor, config=SHORT, clock=clock)) as workshop:
        assert (await workshop.engine.infer(ask(max_tokens=50))).finish_reason is FinishReason.LENGTH
        clock.advance(1000.0)
        assert workshop.engine.death_reason is None
        assert (await workshop.engine.infer(ask("b"))).finish_reason is FinishReason.LENGTH
    assert workshop.recorder.of(EngineFailed) == []


async def test_the_death_of_the_thread_is_told_to_observers() -> None:
    def die(plan: StepPlan) -> None:
        raise SystemExit

    workshop = build_workshop(ScriptedExecutor(before_step=die))
    with pytest.raises(InternalError, match="died"):
        await workshop.engine.infer(ask())
    await eventually(lambda: len(workshop.recorder.of(EngineFailed)) == 1)
    assert workshop.recorder.of(EngineFailed)[0].num_requests == 1
    await workshop.engine.shutdown(0)


async def test_closing_leaves_a_step_behind_that_does_not_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_loop, "_GIVE_UP_S", 0.2)
    workshop, gate, _ = gated()
    waiting = asyncio.create_task(workshop.engine.infer(ask()))
    await eventually(gate.is_waiting.is_set)
    await asyncio.wait_for(workshop.engine.shutdown(0.1), 5)
    with pytest.raises(EngineStalled):
        await waiting
    assert not workshop.executor.is_closed, "its memory is in use"
    assert "did not give up" in str(workshop.engine.death_reason)
    await asyncio.wait_for(workshop.engine.shutdown(0.0), 1)
    gate.let_through(10)
    await eventually(lambda: workshop.engine._steps._thread.is_alive() is False)
    workshop.assert_nothing_is_held()


async def test_every_part_is_closed_whatever_becomes_of_the_others() -> None:
    workshop = build_workshop()
    await workshop.engine.infer(ask())
    closed = []

    def fail() -> None:
        closed.append("pins")
        raise OSError("no room to write")

    workshop.engine._pins.close = fail
    with pytest.raises(OSError, match="no room"):
        await workshop.engine.shutdown(0.0)
    assert closed == ["pins"]
    assert workshop.executor.is_closed


def test_the_watch_tells_once_for_each_stall_and_sleeps_without_work() -> None:
    clock, told = ManualClock(), []
    watch = StallWatch(1.0, clock, told.append)
    watch.begin()
    for _ in range(2):
        clock.advance(2.0)
        assert watch.is_stalled
        deadline = threading.Event()
        while not told and not deadline.wait(0.02):
            pass
        deadline.wait(0.3)
        assert told == [2.0]
        told.clear()
        watch.note_step()
        assert not watch.is_stalled
    watch.rest()
    clock.advance(100.0)
    assert (watch.seconds_without_step, watch.is_stalled) == (0.0, False)
    watch.close()


@pytest.mark.parametrize("is_looked_at_first_by_its_thread", [True, False])
def test_time_in_which_the_whole_process_was_stopped_is_no_stall(
    is_looked_at_first_by_its_thread: bool,
) -> None:
    clock, told = ManualClock(), []
    watch = StallWatch(1.0, clock, told.append, real_clock=clock)
    watch.begin()
    for _ in range(3):
        clock.advance(100.0)
        if is_looked_at_first_by_its_thread:
            threading.Event().wait(0.3)
        assert not watch.is_stalled
        threading.Event().wait(0.3)
        assert not watch.is_stalled
        for is_over in (False, True):  # as long as its thread looks in between, time counts
            clock.advance(0.7)
            threading.Event().wait(0.3)
            assert watch.is_stalled is is_over
        watch.note_step()
    watch.close()
    assert told == [pytest.approx(1.5, abs=0.2)] * 3


async def test_a_request_that_waits_for_its_tokenizer_is_no_work_of_the_engine() -> None:
    workshop, gate, clock = gated()
    async with running(workshop):
        release = threading.Event()
        workshop.engine._workers.submit(release.wait, 10)
        task = asyncio.create_task(workshop.engine.infer(ask()))
        await asyncio.sleep(0.05)
        clock.advance(100.0)
        assert workshop.engine.death_reason is None
        release.set()
        gate.let_through(100)
        await eventually(lambda: len(workshop.recorder.of(RequestQueued)) == 1)
        assert (await task).finish_reason is FinishReason.LENGTH
