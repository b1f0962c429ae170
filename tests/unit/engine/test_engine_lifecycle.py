"""Who comes, who goes, what fails: every way out of the engine gives everything back."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import pytest
from engine_factory import Workshop, ask, build_workshop, eventually, running
from step_gate import StepGate

from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.errors import DuplicateRequest, EngineClosed, InternalError, QueueFull
from ferrum.core.events import RequestFinished, RequestQueued, RequestRejected, StepFailed
from ferrum.core.request import FinishReason
from ferrum.core.step import StepPlan
from ferrum.testing.scripted_executor import ScriptedExecutor


def _gated(**kwargs: object) -> tuple[Workshop, StepGate]:
    gate = StepGate()
    return build_workshop(ScriptedExecutor(before_step=gate, keeps_plans=True), **kwargs), gate


def _reasons(workshop: Workshop) -> list[FinishReason]:
    return [event.reason for event in workshop.recorder.events if isinstance(event, RequestFinished)]


@pytest.mark.parametrize("num_steps_before", [0, 1, 4])
async def test_a_cancelled_task_cancels_its_request_and_no_neighbour(num_steps_before: int) -> None:
    """Before the first step ended, in prefill and in decode."""
    async with running(build_workshop()) as solo:
        expected = await solo.engine.infer(ask("b", prompt="neighbour"))
    scheduler = SchedulerConfig(prefill_step_chunk=2)
    workshop, gate = _gated(scheduler=scheduler)
    async with running(workshop):
        leaving = asyncio.create_task(workshop.engine.infer(ask("a", prompt="leaving soon", max_tokens=50)))
        staying = asyncio.create_task(workshop.engine.infer(ask("b", prompt="neighbour")))
        await eventually(gate.is_waiting.is_set)
        gate.let_through(num_steps_before)
        await eventually(lambda: workshop.executor.num_steps == num_steps_before + 1)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        gate.let_through(100)
        assert (await staying) == expected
        # At the next border between steps, not when the engine is closed.
        assert _reasons(workshop) == [FinishReason.CANCELLED, FinishReason.LENGTH]


async def test_a_queued_request_can_leave_without_disturbing_those_before_it() -> None:
    workshop, gate = _gated(scheduler=SchedulerConfig(max_running_requests=1))
    async with running(workshop):
        first = asyncio.create_task(workshop.engine.infer(ask("a")))
        await eventually(gate.is_waiting.is_set)
        queued = asyncio.create_task(workshop.engine.infer(ask("b")))
        await eventually(lambda: workshop.engine.status().num_waiting == 1)
        queued.cancel()
        with pytest.raises(asyncio.CancelledError):
            await queued
        gate.let_through(100)
        assert (await first).finish_reason is FinishReason.LENGTH
    assert {part.request_id for plan in workshop.executor.plans for part in plan.parts} == {"a"}


@pytest.mark.parametrize("num_chunks", [0, 1, 3])
async def test_a_closed_stream_cancels_within_a_step(num_chunks: int) -> None:
    async with running(build_workshop(ScriptedExecutor(latency_s=0.002))) as workshop:
        stream = await workshop.engine.open_stream(ask(max_tokens=200))
        for _ in range(num_chunks):
            await anext(stream)
        await stream.aclose()
        await stream.aclose()
        await eventually(lambda: _reasons(workshop) == [FinishReason.CANCELLED])
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        assert (await workshop.engine.infer(ask())).finish_reason is FinishReason.LENGTH


async def test_a_dropped_stream_cancels_too() -> None:
    async with running(build_workshop(ScriptedExecutor(latency_s=0.002))) as workshop:
        stream = await workshop.engine.open_stream(ask(max_tokens=200))
        await anext(stream)
        del stream
        gc.collect()
        await eventually(lambda: _reasons(workshop) == [FinishReason.CANCELLED])


async def test_leaving_the_loop_over_infer_stream_cancels() -> None:
    async with running(build_workshop(ScriptedExecutor(latency_s=0.002))) as workshop:
        stream = workshop.engine.infer_stream(ask(max_tokens=200))
        async for _ in stream:
            break
        await stream.aclose()
        await eventually(lambda: _reasons(workshop) == [FinishReason.CANCELLED])


async def test_a_step_is_given_up_when_everybody_in_it_has_left() -> None:
    async with running(build_workshop(ScriptedExecutor(latency_s=30.0))) as workshop:
        task = asyncio.create_task(workshop.engine.infer(ask()))
        await eventually(lambda: workshop.executor.num_steps == 1)
        task.cancel()
        await eventually(lambda: _reasons(workshop) == [FinishReason.CANCELLED])


async def test_a_step_goes_on_when_only_some_of_it_have_left() -> None:
    workshop, gate = _gated()
    aborts = []
    workshop.executor.abort = lambda: aborts.append(1)
    async with running(workshop):
        staying = asyncio.create_task(workshop.engine.infer(ask("a")))
        leaving = asyncio.create_task(workshop.engine.infer(ask("b")))
        await eventually(gate.is_waiting.is_set)
        gate.let_through()
        await eventually(lambda: workshop.engine.status().num_running == 2)
        leaving.cancel()
        await asyncio.sleep(0.01)
        assert aborts == []
        gate.let_through(100)
        await staying


async def test_giving_up_one_wait_does_not_end_the_stream() -> None:
    workshop, gate = _gated()
    async with running(workshop):
        stream = await workshop.engine.open_stream(ask(max_tokens=3))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0.01)
        gate.let_through(100)
        assert len("".join([chunk.text async for chunk in stream])) == 3


async def test_cancel_by_id_gives_the_caller_what_there_is() -> None:
    workshop, gate = _gated()
    async with running(workshop):
        task = asyncio.create_task(workshop.engine.infer(ask(max_tokens=50)))
        gate.let_through(4)
        await eventually(lambda: workshop.executor.num_steps == 5)
        assert workshop.engine.cancel("a")
        assert not workshop.engine.cancel("unknown")
        gate.let_through(100)
        result = await task
        assert result.finish_reason is FinishReason.CANCELLED
        assert len(result.text) == result.usage.completion_tokens == 5
        assert not workshop.engine.cancel("a")


async def test_requests_that_leave_while_their_prompt_is_read_hold_nothing() -> None:
    async with running(build_workshop()) as workshop:
        release = threading.Event()
        workshop.engine._workers.submit(release.wait, 10)
        task = asyncio.create_task(workshop.engine.infer(ask()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert workshop.ledger.outstanding() == {}
        release.set()
    assert workshop.executor.num_steps == 0


async def test_an_active_id_is_refused_and_free_again_afterwards() -> None:
    workshop, gate = _gated()
    async with running(workshop):
        first = asyncio.create_task(workshop.engine.infer(ask("a")))
        await eventually(gate.is_waiting.is_set)
        with pytest.raises(DuplicateRequest) as caught:
            await workshop.engine.open_stream(ask("a"))
        assert caught.value.request_id == "a"
        gate.let_through(100)
        assert (await first).text == (await workshop.engine.infer(ask("a"))).text


async def test_a_full_queue_refuses_and_counts_what_nobody_has_read_yet() -> None:
    workshop, gate = _gated(scheduler=SchedulerConfig(max_running_requests=1, max_waiting_requests=1))
    async with running(workshop):
        accepted = []
        for number in range(2):
            workshop.engine.require_room()
            accepted.append(asyncio.create_task(workshop.engine.infer(ask(str(number)))))
            await eventually(lambda: len(workshop.recorder.of(RequestQueued)) == len(accepted))
        for _ in range(3):
            with pytest.raises(QueueFull) as caught:
                workshop.engine.require_room()
        assert (caught.value.waiting, caught.value.limit) == (1, 1)
        gate.let_through(200)
        await asyncio.gather(*accepted)
        workshop.engine.require_room()
    assert [event.error for event in workshop.recorder.of(RequestRejected)] == ["QueueFull"] * 3
    with pytest.raises(EngineClosed):
        workshop.engine.require_room()
    workshop.assert_nothing_is_held()


async def test_a_full_queue_refuses_at_once_and_takes_requests_again_later() -> None:
    workshop, gate = _gated(scheduler=SchedulerConfig(max_running_requests=2, max_waiting_requests=3))
    async with running(workshop):
        accepted = [asyncio.create_task(workshop.engine.infer(ask(str(i)))) for i in range(5)]
        await eventually(lambda: len(workshop.recorder.of(RequestQueued)) == 5)
        for number in range(20):
            started = time.monotonic()
            with pytest.raises(QueueFull) as caught:
                await workshop.engine.infer(ask(f"extra{number}"))
            assert time.monotonic() - started < 0.2
        assert (caught.value.waiting, caught.value.limit) == (3, 3)
        assert caught.value.retry_after_s >= 1
        gate.let_through(200)
        await asyncio.gather(*accepted)
        assert (await workshop.engine.infer(ask("late"))).finish_reason is FinishReason.LENGTH
    assert len(workshop.recorder.of(RequestRejected)) == 20
    assert len(workshop.recorder.of(RequestFinished)) == 6


def _breaks_on(culprit: str, error: Exception) -> ScriptedExecutor:
    def raise_for_the_culprit(plan: StepPlan) -> None:
        if any(part.request_id == culprit for part in plan.parts):
            raise error

    return ScriptedExecutor(before_step=raise_for_the_culprit)


async def test_a_step_that_stumbles_once_costs_a_lone_request_nothing() -> None:
    stumbles = iter([False, False, True, False, True])

    def stumble(plan: StepPlan) -> None:
        if next(stumbles, False):
            raise OSError("the device stumbled")

    alone = build_workshop()
    expected = await alone.engine.infer(ask("a", max_tokens=9))
    await alone.engine.shutdown(0.0)
    workshop = build_workshop(ScriptedExecutor(before_step=stumble))
    async with running(workshop):
        result = await workshop.engine.infer(ask("a", max_tokens=9))
    assert result.token_ids == expected.token_ids
    assert [event.num_failed for event in workshop.recorder.of(StepFailed)] == [0, 0]


@pytest.mark.parametrize("error", [ValueError("boom"), MemoryError(), InternalError("no finite logit")])
async def test_a_request_that_breaks_a_step_fails_alone(error: Exception) -> None:
    async with running(build_workshop()) as solo:
        expected = [await solo.engine.infer(ask(name, prompt=name * 3)) for name in "ac"]
    async with running(build_workshop(_breaks_on("b", error))) as workshop:
        answers = await asyncio.gather(
            *(workshop.engine.infer(ask(name, prompt=name * 3)) for name in "abc"), return_exceptions=True
        )
        assert [answers[0], answers[2]] == expected
        assert isinstance(answers[1], InternalError)
        assert await workshop.engine.infer(ask("d"))
    assert len(workshop.recorder.of(StepFailed)) >= 1
    assert workshop.engine.death_reason is None


async def test_when_nothing_works_every_request_fails_and_the_engine_lives_on() -> None:
    executor = ScriptedExecutor()
    async with running(build_workshop(executor)) as workshop:
        executor.before_step = lambda plan: (_ for _ in ()).throw(OSError("the device is gone"))
        answers = await asyncio.gather(
            *(workshop.engine.infer(ask(name)) for name in "abc"), return_exceptions=True
        )
        assert all(
            isinstance(answer, InternalError) and "device is gone" in str(answer) for answer in answers
        )
        executor.before_step = None
        assert (await workshop.engine.infer(ask("d"))).finish_reason is FinishReason.LENGTH


async def test_a_stream_ends_with_the_error_after_the_text_it_had() -> None:
    executor = ScriptedExecutor()
    workshop = build_workshop(executor)
    async with running(workshop):

        def fail_in_the_third_step(plan: StepPlan) -> None:
            if executor.num_steps > 2:
                raise ValueError("boom")

        executor.before_step = fail_in_the_third_step
        stream = await workshop.engine.open_stream(ask())
        assert (await anext(stream)).text
        with pytest.raises(InternalError, match="boom"):
            async for _ in stream:
                pass
    assert _reasons(workshop) == [FinishReason.ERROR]


async def test_an_executor_that_answers_for_the_wrong_request_is_caught() -> None:
    async with running(build_workshop()) as workshop:
        execute = workshop.executor.execute

        def swallow(plan: StepPlan) -> object:
            return type(execute(plan))(())

        workshop.executor.execute = swallow
        with pytest.raises(InternalError, match="asked to choose tokens for"):
            await workshop.engine.infer(ask())


async def test_a_bug_between_steps_fails_the_active_requests_and_nobody_waits_forever() -> None:
    async with running(build_workshop()) as workshop:
        schedule = workshop.engine._scheduler.schedule
        workshop.engine._scheduler.schedule = lambda: 1 / 0
        with pytest.raises(InternalError, match="between steps"):
            await workshop.engine.infer(ask())
        workshop.engine._scheduler.schedule = schedule
        assert await workshop.engine.infer(ask())


async def test_a_dead_thread_is_reported_and_refuses_requests() -> None:
    def die(plan: StepPlan) -> None:
        raise SystemExit

    workshop = build_workshop(ScriptedExecutor(before_step=die))
    with pytest.raises(InternalError, match="died"):
        await workshop.engine.infer(ask())
    assert workshop.engine.death_reason is not None
    assert not workshop.engine.status().is_ready
    with pytest.raises(InternalError, match="dead"):
        await workshop.engine.infer(ask("b"))
    await workshop.engine.shutdown(0)


async def test_shutdown_lets_running_requests_end_and_refuses_new_ones() -> None:
    workshop = build_workshop(ScriptedExecutor(latency_s=0.005))
    tasks = [asyncio.create_task(workshop.engine.infer(ask(name))) for name in "abcd"]
    await eventually(lambda: workshop.engine.status().num_running == 4)
    closing = asyncio.create_task(workshop.engine.shutdown(10.0))
    await eventually(lambda: not workshop.engine.status().is_ready)
    with pytest.raises(EngineClosed):
        await workshop.engine.infer(ask("late"))
    assert [result.finish_reason for result in await asyncio.gather(*tasks)] == [FinishReason.LENGTH] * 4
    await closing
    assert workshop.executor.is_closed
    workshop.assert_nothing_is_held()


async def test_shutdown_cancels_what_outlives_the_drain_time() -> None:
    workshop = build_workshop(ScriptedExecutor(latency_s=0.01))
    tasks = [asyncio.create_task(workshop.engine.infer(ask(name, max_tokens=100))) for name in "ab"]
    await eventually(lambda: workshop.engine.status().num_running == 2)
    await workshop.engine.shutdown(0.05)
    results = await asyncio.gather(*tasks)
    assert [result.finish_reason for result in results] == [FinishReason.CANCELLED] * 2
    assert all(len(result.text) == result.usage.completion_tokens > 0 for result in results)
    workshop.assert_nothing_is_held()


async def test_a_second_shutdown_cuts_the_first_one_short() -> None:
    workshop = build_workshop(ScriptedExecutor(latency_s=0.01))
    task = asyncio.create_task(workshop.engine.infer(ask(max_tokens=200)))
    await eventually(lambda: workshop.engine.status().num_running == 1)
    patient = asyncio.create_task(workshop.engine.shutdown(60.0))
    await asyncio.sleep(0.02)
    await asyncio.wait_for(workshop.engine.shutdown(0.0), 5.0)
    await asyncio.wait_for(patient, 5.0)
    assert (await task).finish_reason is FinishReason.CANCELLED


async def test_shutdown_of_an_engine_that_never_ran_starts_no_thread() -> None:
    before = threading.active_count()
    workshop = build_workshop()
    await workshop.engine.shutdown()
    with pytest.raises(EngineClosed):
        workshop.engine.generate([ask()])
    assert threading.active_count() <= before + 1  # asyncio's own worker of shutdown
    assert workshop.executor.num_steps == 0


async def test_a_full_drain_with_nothing_to_do_takes_no_time() -> None:
    workshop = build_workshop()
    await workshop.engine.infer(ask())
    started = time.monotonic()
    await workshop.engine.shutdown(60.0)
    assert time.monotonic() - started < 2.0


async def test_an_idle_engine_uses_no_processor_time_and_wakes_at_once() -> None:
    async with running(build_workshop()) as workshop:
        await workshop.engine.infer(ask())
        before = time.process_time()
        await asyncio.sleep(0.3)
        assert time.process_time() - before < 0.02
        started = time.monotonic()
        await workshop.engine.infer(ask("b", max_tokens=1))
        assert time.monotonic() - started < 0.2


async def test_a_reader_that_does_not_read_neither_stops_the_engine_nor_loses_text() -> None:
    config = EngineConfig(stream_buffer_chunks=3)
    one_by_one = ScriptedExecutor(latency_s=0.001)
    async with running(build_workshop(one_by_one, config=config)) as workshop:
        stream = await workshop.engine.open_stream(ask(max_tokens=100))
        other = await workshop.engine.infer(ask("b", max_tokens=100))
        await eventually(lambda: len(workshop.recorder.of(RequestFinished)) == 2)
        await asyncio.sleep(0)
        assert stream.num_buffered <= 3
        assert "".join([chunk.text async for chunk in stream]) == other.text


async def test_a_loop_that_is_busy_gets_everything_afterwards() -> None:
    async with running(build_workshop()) as workshop:
        stream = await workshop.engine.open_stream(ask(max_tokens=100))
        time.sleep(0.1)
        assert len("".join([chunk.text async for chunk in stream])) == 100


def test_several_loops_and_threads_share_one_engine() -> None:
    workshop = build_workshop()
    texts: list[str] = []

    def with_a_loop_of_its_own(name: str) -> None:
        async def both() -> None:
            result, chunks = await asyncio.gather(workshop.engine.infer(ask(f"{name}1")), _texts(name))
            texts.extend((result.text, chunks))

        async def _texts(name: str) -> str:
            return "".join([chunk.text async for chunk in workshop.engine.infer_stream(ask(f"{name}2"))])

        asyncio.run(both())

    threads = [threading.Thread(target=with_a_loop_of_its_own, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    texts.append(workshop.engine.generate([ask("sync")])[0].text)
    for thread in threads:
        thread.join()
    assert len(texts) == 9
    assert len(set(texts)) == 1
    workshop.engine.close()
    workshop.assert_nothing_is_held()


def test_a_loop_that_closed_cancels_the_requests_it_left_behind() -> None:
    workshop = build_workshop(ScriptedExecutor(latency_s=0.005))
    kept: list[object] = []

    async def leave() -> None:
        kept.append(await workshop.engine.open_stream(ask(max_tokens=200)))

    asyncio.run(leave())
    deadline = time.monotonic() + 2
    while not _reasons(workshop):
        assert time.monotonic() < deadline
        time.sleep(0.002)
    assert _reasons(workshop) == [FinishReason.CANCELLED]
    workshop.engine.close()
    workshop.assert_nothing_is_held()


async def test_a_storm_of_comers_and_goers_leaves_nothing_behind() -> None:
    scheduler = SchedulerConfig(max_running_requests=4, max_waiting_requests=8, prefill_step_chunk=3)
    async with running(build_workshop(ScriptedExecutor(latency_s=0.0002), scheduler=scheduler)) as workshop:

        async def one(number: int) -> None:
            request = ask(str(number), prompt="x" * (1 + number % 17), max_tokens=1 + number % 9)
            await asyncio.sleep(number % 23 / 1000)
            try:
                async with asyncio.timeout(0.003 if number % 3 == 0 else 5):
                    await workshop.engine.infer(request)
            except (TimeoutError, QueueFull):
                pass

        await asyncio.gather(*map(one, range(200)))
        await eventually(lambda: workshop.engine.status().num_running == 0)
        queued = {event.request_id for event in workshop.recorder.events if isinstance(event, RequestQueued)}
        ended = [e.request_id for e in workshop.recorder.events if isinstance(e, RequestFinished)]
        assert sorted(ended) == sorted(queued)
        assert (await workshop.engine.infer(ask("control"))).finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("drain_s", [float("inf"), 1e30])
async def test_a_drain_without_limit_waits_for_the_requests(drain_s: float) -> None:
    workshop, gate = _gated()
    answer = asyncio.create_task(workshop.engine.infer(ask("a", max_tokens=2)))
    await eventually(gate.is_waiting.is_set)
    closing = asyncio.create_task(workshop.engine.shutdown(drain_s))
    gate.let_through(10)
    await closing
    assert (await answer).finish_reason is FinishReason.LENGTH
    workshop.assert_nothing_is_held()
