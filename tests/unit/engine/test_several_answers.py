"""A request for several answers: what they are, what they share, and how they end together."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from engine_factory import Workshop, ask, build_workshop, eventually, running

from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.errors import DeadlineExceeded, FerrumError, InternalError, InvalidRequest, QueueFull
from ferrum.core.events import RequestFinished, RequestQueued, RequestRejected, RequestSubmitted
from ferrum.core.request import FinishReason, InferenceRequest, InferenceResult, StreamChunk
from ferrum.core.step import SamplingInstruction, StepPlan
from ferrum.engine.answers import answer_seed
from ferrum.testing.manual_clock import ManualClock
from ferrum.testing.scripted_executor import ScriptedExecutor, letter_of_history

PROMPT = "a prompt that is longer than a block or two of the cache"


def several(request_id: str = "a", n: int = 3, **fields: object) -> InferenceRequest:
    fields = {"temperature": 1.0, "seed": 5, "prompt": PROMPT, "n": n, **fields}
    return ask(request_id, **fields)


async def collect(workshop: Workshop, request: InferenceRequest) -> list[StreamChunk]:
    return [chunk async for chunk in workshop.engine.infer_stream(request)]


async def test_the_first_answer_is_what_a_request_for_one_gets_and_the_others_differ() -> None:
    async with running(build_workshop()) as workshop:
        one = await workshop.engine.infer(several("one", n=1))
        result = await workshop.engine.infer(several("many"))
    assert [len(answer.token_ids) for answer in result.answers] == [8, 8, 8]
    assert (result.text, result.seed) == (one.text, one.seed)
    assert len({answer.text for answer in result.answers}) == 3
    assert len({answer.seed for answer in result.answers}) == 3
    assert one.alternatives == ()


async def test_each_answer_can_be_had_again_alone_under_its_seed() -> None:
    async with running(build_workshop()) as workshop:
        result = await workshop.engine.infer(several(seed=None))
        for answer in result.answers:
            alone = await workshop.engine.infer(several("alone", n=1, seed=answer.seed))
            assert alone.text == answer.text


async def test_neither_company_nor_a_cache_changes_them() -> None:
    async with running(build_workshop()) as workshop:
        first = await workshop.engine.infer(several())
    config = EngineConfig(prefix_cache=False, scheduler=SchedulerConfig(max_running_requests=2))
    async with running(build_workshop(config=config)) as workshop:
        results = await asyncio.gather(*(workshop.engine.infer(several(name)) for name in "abc"))
    for result in results:
        assert [answer.text for answer in result.answers] == [answer.text for answer in first.answers]


def test_seeds_of_answers_are_distinct_and_in_range() -> None:
    seeds = [answer_seed(seed, index) for seed in (0, 1, 2**63 - 1, -5) for index in range(64)]
    assert len(set(seeds)) == len(seeds)
    assert all(-(2**63) <= seed < 2**63 for seed in seeds)
    assert answer_seed(-5, 0) == -5


async def test_the_prompt_is_counted_once_and_computed_once() -> None:
    executor = ScriptedExecutor(keeps_plans=True)
    async with running(build_workshop(executor)) as workshop:
        result = await workshop.engine.infer(several(n=4))
    assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (len(PROMPT), 32)
    assert result.usage.cached_tokens == 0
    assert [answer.usage.completion_tokens for answer in result.alternatives] == [8, 8, 8]
    computed = sum(plan.num_tokens for plan in executor.plans)
    # The prompt, its last token again for each of the others, and all output tokens but each answer's last.
    assert computed <= len(PROMPT) + 3 + 4 * 7


async def test_a_stream_brings_each_answer_under_its_index_with_an_end_of_its_own() -> None:
    async with running(build_workshop()) as workshop:
        whole = await workshop.engine.infer(several("whole"))
        chunks = await collect(workshop, several("stream"))
    for index, answer in enumerate(whole.answers):
        own = [chunk for chunk in chunks if chunk.index == index]
        assert "".join(chunk.text for chunk in own) == answer.text
        assert [chunk.result is not None for chunk in own] == [False] * (len(own) - 1) + [True]
        last = own[-1].result
        assert last is not None
        assert (last.text, last.seed, last.finish_reason) == (answer.text, answer.seed, answer.finish_reason)
    # They come side by side, not one after the other.
    firsts = [next(place for place, chunk in enumerate(chunks) if chunk.index == index) for index in range(3)]
    assert max(firsts) < 6


async def test_the_best_are_those_of_the_highest_log_probability() -> None:
    async with running(build_workshop()) as workshop:
        every = await workshop.engine.infer(several("every", n=6, logprobs=0))
        best = await workshop.engine.infer(several("best", n=2, best_of=6))
    by_score = sorted(every.answers, key=lambda answer: -(answer.cumulative_logprob or 0))
    assert [answer.text for answer in best.answers] == [answer.text for answer in by_score[:2]]
    assert best.cumulative_logprob == pytest.approx(by_score[0].cumulative_logprob)
    assert every.cumulative_logprob == pytest.approx(
        sum(entry.logprob or 0 for entry in every.logprobs or ())
    )
    assert best.logprobs is None
    assert best.usage.completion_tokens == 48
    assert best.usage.prompt_tokens == len(PROMPT)


async def test_greedy_answers_are_alike() -> None:
    async with running(build_workshop()) as workshop:
        result = await workshop.engine.infer(several(temperature=0.0, best_of=5))
    assert len({answer.text for answer in result.answers}) == 1


async def test_prompt_log_probabilities_are_found_once_and_every_answer_has_them() -> None:
    executor = ScriptedExecutor(keeps_plans=True)
    async with running(build_workshop(executor)) as workshop:
        result = await workshop.engine.infer(several(prompt_logprobs=1))
        scored = sum(
            len(part.scored.token_ids) for plan in executor.plans for part in plan.parts if part.scored
        )
        echoed = await collect(workshop, several("echoed", echo=True, logprobs=1))
    assert scored == len(PROMPT) - 1
    for answer in result.answers:
        assert answer.prompt_logprobs == result.prompt_logprobs
        assert len(answer.prompt_logprobs or ()) == len(PROMPT)
    for index in range(3):
        entries = [entry for chunk in echoed if chunk.index == index for entry in chunk.logprobs]
        assert tuple(entries[: len(PROMPT)]) == result.prompt_logprobs
        assert len(entries) == len(PROMPT) + 8


async def test_cancelling_the_request_cancels_every_answer() -> None:
    executor = ScriptedExecutor(latency_s=0.01)
    async with running(build_workshop(executor)) as workshop:
        waiting = asyncio.create_task(workshop.engine.infer(several(max_tokens=60)))
        await eventually(lambda: workshop.engine.status().num_running == 3)
        assert workshop.engine.cancel("a")
        result = await waiting
        assert [answer.finish_reason for answer in result.answers] == [FinishReason.CANCELLED] * 3
        assert not workshop.engine.cancel("a")
        # What is left when the first answer has ended answers to the same name.
        executor._choose = _first_ends_at_once
        waiting = asyncio.create_task(workshop.engine.infer(several(max_tokens=60)))
        await eventually(lambda: workshop.engine.status().num_running == 2)
        requests = workshop.engine._steps._requests
        await eventually(lambda: "a" not in [each.request_id for each in requests.all()])
        assert workshop.engine.cancel("a")
        reasons = [answer.finish_reason for answer in (await waiting).answers]
        assert reasons == [FinishReason.EOS, FinishReason.CANCELLED, FinishReason.CANCELLED]


def _first_ends_at_once(request_id: str, history: tuple[int, ...], sampling: SamplingInstruction) -> int:
    return 256 if request_id == "a" else letter_of_history(request_id, history, sampling)


@pytest.mark.parametrize("leaves", ["task", "stream"])
async def test_a_caller_who_leaves_cancels_every_answer(leaves: str) -> None:
    async with running(build_workshop(ScriptedExecutor(latency_s=0.01))) as workshop:
        if leaves == "task":
            waiting = asyncio.create_task(workshop.engine.infer(several(max_tokens=60)))
            await eventually(lambda: workshop.engine.status().num_running == 3)
            waiting.cancel()
        else:
            stream = await workshop.engine.open_stream(several(max_tokens=60))
            await anext(stream)
            await stream.aclose()
        await eventually(lambda: workshop.engine.status().num_running == 0)
        finished = workshop.recorder.of(RequestFinished)
        assert [event.reason for event in finished] == [FinishReason.CANCELLED] * 3


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_the_failure_of_one_answer_fails_the_request_and_ends_the_others(is_streamed: bool) -> None:
    def fail(plan: StepPlan) -> None:
        for part in plan.parts:
            if part.request_id == "a#1" and part.start_position > len(PROMPT) + 3:
                raise InternalError("broken")

    executor = ScriptedExecutor(before_step=fail, latency_s=0.01)
    async with running(build_workshop(executor)) as workshop:
        answer = collect if is_streamed else _whole
        with pytest.raises(FerrumError, match="broken"):
            await answer(workshop, several(max_tokens=60))
        await eventually(lambda: workshop.engine.status().num_running == 0)
        reasons = [event.reason for event in workshop.recorder.of(RequestFinished)]
        assert sorted(reasons) == [FinishReason.CANCELLED, FinishReason.CANCELLED, FinishReason.ERROR]
        assert (await workshop.engine.infer(several("b"))).usage.completion_tokens == 24


async def _whole(workshop: Workshop, request: InferenceRequest) -> InferenceResult:
    return await workshop.engine.infer(request)


async def test_time_that_runs_out_leaves_what_there_is_of_every_answer() -> None:
    clock = ManualClock()

    def advance(plan: StepPlan) -> None:
        if any(part.start_position > len(PROMPT) + 2 for part in plan.parts):
            clock.advance(10)

    # Two run and one waits: it has no token when the time is over, but the request has.
    scheduler = SchedulerConfig(max_running_requests=2)
    workshop = build_workshop(ScriptedExecutor(before_step=advance), scheduler, clock=clock)
    async with running(workshop):
        result = await workshop.engine.infer(replace(several(max_tokens=40), timeout_s=5.0))
    assert [answer.finish_reason for answer in result.answers] == [FinishReason.TIMEOUT] * 3
    assert [bool(answer.token_ids) for answer in result.answers] == [True, True, False]


async def test_time_that_runs_out_before_any_token_refuses_the_request() -> None:
    clock = ManualClock()
    executor = ScriptedExecutor(before_step=lambda plan: clock.advance(10))
    scheduler = SchedulerConfig(prefill_step_chunk=8)
    async with running(build_workshop(executor, scheduler, clock=clock)) as workshop:
        with pytest.raises(DeadlineExceeded):
            await workshop.engine.infer(replace(several(), timeout_s=5.0))


async def test_all_answers_find_a_place_or_none_does() -> None:
    scheduler = SchedulerConfig(max_running_requests=2, max_waiting_requests=2)
    executor = ScriptedExecutor(latency_s=0.01)
    async with running(build_workshop(executor, scheduler)) as workshop:
        waiting = asyncio.create_task(workshop.engine.infer(several("first", n=2, max_tokens=60)))
        await eventually(lambda: workshop.engine.status().num_running == 2)
        with pytest.raises(QueueFull):
            await workshop.engine.infer(several("second", n=3))
        with pytest.raises(InvalidRequest, match="at most 4") as refusal:
            await workshop.engine.infer(several("third", n=5))
        assert refusal.value.param == "n"
        with pytest.raises(InvalidRequest) as refusal:
            await workshop.engine.infer(several("fourth", n=1, best_of=5))
        assert refusal.value.param == "best_of"
        await waiting
        recorder = workshop.recorder
        submitted, rejected = len(recorder.of(RequestSubmitted)), len(recorder.of(RequestRejected))
        assert submitted == rejected + len(recorder.of(RequestQueued))


async def test_more_prompt_tokens_than_may_wait_are_refused_by_name() -> None:
    scheduler = SchedulerConfig(max_waiting_tokens=100)
    async with running(build_workshop(scheduler=scheduler)) as workshop:
        with pytest.raises(InvalidRequest, match="more than may wait") as refusal:
            await workshop.engine.infer(several(n=4))
        assert refusal.value.param == "n"


async def test_the_best_of_several_cannot_be_streamed() -> None:
    async with running(build_workshop()) as workshop:
        with pytest.raises(InvalidRequest) as refusal:
            await workshop.engine.open_stream(several(best_of=4))
        assert refusal.value.param == "best_of"


def test_the_offline_door_answers_them_together() -> None:
    scheduler = SchedulerConfig(max_running_requests=2, max_waiting_requests=4)
    workshop = build_workshop(scheduler=scheduler)
    try:
        requests = [several(str(number), seed=number, best_of=number % 2 + 3) for number in range(6)]
        results: list[InferenceResult] = workshop.engine.generate(requests)
        again = [workshop.engine.generate([request])[0] for request in requests]
    finally:
        workshop.engine.close(0.0)
    assert [len(result.answers) for result in results] == [3] * 6
    assert [result.text for result in results] == [result.text for result in again]
    workshop.assert_nothing_is_held()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": True}, "n"),
        ({"n": 1.5}, "n"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"best_of": 129}, "best_of"),
        ({"best_of": "3"}, "best_of"),
    ],
)
def test_counts_out_of_range_are_refused_by_name(fields: dict[str, object], param: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        ask(**fields)
    assert refusal.value.param == param
