"""Log-probabilities of answers and prompts: what they belong to, and that company changes none of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from engine_factory import Workshop, ask, build_workshop, running

from ferrum.core.config import SchedulerConfig
from ferrum.core.events import FirstToken, RequestPreempted, TokensEmitted
from ferrum.core.logprobs import TokenLogprobs
from ferrum.core.request import FinishReason, InferenceRequest, InferenceResult, StreamChunk, TokenPrompt
from ferrum.execution.executor import ExecutorCapacity
from ferrum.runtimes.exact_log_probabilities import row_logprobs
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.testing.scripted_executor import ScriptedExecutor, logits_of_history, scripted

PROMPT = "a prompt of some length, longer than a block of the cache"


def expected(history: Sequence[int], token_id: int, num_top: int) -> tuple[float, int, tuple[int, ...]]:
    row = row_logprobs(logits_of_history(tuple(history), 258), token_id, num_top)
    return row.logprob, row.rank, row.top_ids


def found(entry: TokenLogprobs) -> tuple[float | None, int | None, tuple[int, ...]]:
    return entry.logprob, entry.rank, tuple(each.token_id for each in entry.top)


async def collect(workshop: Workshop, request: InferenceRequest) -> list[StreamChunk]:
    return [chunk async for chunk in workshop.engine.infer_stream(request)]


async def test_every_generated_token_has_the_log_probability_of_its_place() -> None:
    async with running(build_workshop()) as workshop:
        result = await workshop.engine.infer(ask(logprobs=5))
    history = list(b"hello")
    assert result.logprobs is not None
    assert len(result.logprobs) == len(result.token_ids) == 8
    for token_id, entry in zip(result.token_ids, result.logprobs, strict=True):
        assert (entry.token_id, entry.data) == (token_id, bytes([token_id]))
        assert found(entry) == expected(history, token_id, 5)
        assert [each.rank for each in entry.top] == [1, 2, 3, 4, 5]
        history.append(token_id)


async def test_zero_asks_for_the_tokens_alone_and_nobody_gets_what_was_not_asked_for() -> None:
    async with running(build_workshop()) as workshop:
        silent, alone = await asyncio.gather(
            workshop.engine.infer(ask("a")), workshop.engine.infer(ask("b", logprobs=0))
        )
    assert silent.logprobs is None
    assert silent.prompt_logprobs is None
    assert alone.logprobs is not None
    assert all(entry.top == () for entry in alone.logprobs)
    assert silent.token_ids == alone.token_ids


async def test_every_prompt_token_but_the_first_has_a_log_probability() -> None:
    async with running(build_workshop()) as workshop:
        result = await workshop.engine.infer(ask(prompt=PROMPT, prompt_logprobs=2))
    ids = list(PROMPT.encode())
    entries = result.prompt_logprobs
    assert entries is not None
    assert [entry.token_id for entry in entries] == ids
    assert (entries[0].logprob, entries[0].rank, entries[0].top) == (None, None, ())
    assert [found(entry) for entry in entries[1:]] == [
        expected(ids[:place], ids[place], 2) for place in range(1, len(ids))
    ]
    assert [entry.text_offset for entry in entries] == list(range(len(ids)))
    assert result.logprobs is None


@pytest.mark.parametrize(
    "scheduler",
    [
        SchedulerConfig(max_scored_tokens=1),
        SchedulerConfig(max_scored_tokens=3),
        SchedulerConfig(prefill_step_chunk=5),
        SchedulerConfig(max_scored_tokens=7, max_num_batched_tokens=16, max_running_requests=2),
    ],
)
async def test_chunks_and_company_do_not_change_them(scheduler: SchedulerConfig) -> None:
    wanted = {"prompt": PROMPT, "prompt_logprobs": 3, "logprobs": 3}
    async with running(build_workshop()) as workshop:
        alone = await workshop.engine.infer(ask(**wanted))
    async with running(build_workshop(scheduler=scheduler)) as workshop:
        requests = [ask(str(number), **wanted) for number in range(4)]
        others = [ask(f"other {number}", prompt=PROMPT[number:]) for number in range(3)]
        results = await asyncio.gather(*map(workshop.engine.infer, [*requests, *others]))
    for result in results[:4]:
        assert result.prompt_logprobs == alone.prompt_logprobs
        assert result.logprobs == alone.logprobs


async def test_a_step_scores_no_more_prompt_tokens_than_it_has_room_for() -> None:
    executor = ScriptedExecutor(keeps_plans=True)
    scheduler = SchedulerConfig(max_scored_tokens=6)
    async with running(build_workshop(executor, scheduler)) as workshop:
        requests = [ask(str(number), prompt=PROMPT, prompt_logprobs=0) for number in range(3)]
        await asyncio.gather(*map(workshop.engine.infer, requests))
    for plan in executor.plans:
        assert sum(len(part.scored.token_ids) for part in plan.parts if part.scored) <= 6
        assert sum(part.num_outputs for part in plan.parts) <= 6 + len(plan.parts)


async def test_a_cached_prompt_is_computed_again_for_its_log_probabilities() -> None:
    async with running(build_workshop()) as workshop:
        cold = await workshop.engine.infer(ask("cold", prompt=PROMPT, prompt_logprobs=1))
        await workshop.engine.infer(ask("fill", prompt=PROMPT))
        warm = await workshop.engine.infer(ask("warm", prompt=PROMPT, prompt_logprobs=1))
        other = await workshop.engine.infer(ask("other", prompt=PROMPT))
    assert warm.prompt_logprobs == cold.prompt_logprobs
    assert warm.usage.cached_tokens == 0
    assert warm.token_ids == cold.token_ids
    assert other.usage.cached_tokens > 0


@pytest.mark.parametrize("num_blocks", [24, 28, 36])
async def test_a_preempted_request_has_each_of_them_once(num_blocks: int) -> None:
    wanted = {"prompt_logprobs": 2, "logprobs": 2, "temperature": 1.0, "ignore_eos": True}
    requests = [ask(str(seed), PROMPT[seed : seed + 40], None, seed=seed, **wanted) for seed in range(3)]
    scheduler = SchedulerConfig(expected_output_tokens=1, max_scored_tokens=5)

    def workshop_of(num_blocks: int) -> Workshop:
        capacity = ExecutorCapacity(num_blocks, block_tokens=4, context_length=90, vocabulary_size=258)
        return build_workshop(ScriptedExecutor(capacity=capacity), scheduler)

    async with running(workshop_of(100)) as workshop:
        alone = [await workshop.engine.infer(request) for request in requests]
    async with running(workshop_of(num_blocks)) as workshop:
        results = await asyncio.gather(*map(workshop.engine.infer, requests))
        assert workshop.recorder.of(RequestPreempted)
    for result, unhurried in zip(results, alone, strict=True):
        assert len(result.logprobs or ()) == len(result.token_ids) == 50
        assert len(result.prompt_logprobs or ()) == 40
        assert result.prompt_logprobs == unhurried.prompt_logprobs
        assert result.logprobs == unhurried.logprobs


async def test_a_stream_carries_those_of_the_whole_answer() -> None:
    async with running(build_workshop()) as workshop:
        for fields in ({}, {"echo": True}, {"stop": ["q"]}, {"echo": True, "max_tokens": 0}):
            request = ask(prompt=PROMPT, logprobs=2, **fields)
            whole = await workshop.engine.infer(replace(request, request_id="whole"))
            chunks = await collect(workshop, request)
            assert "".join(chunk.text for chunk in chunks) == whole.text
            streamed = tuple(entry for chunk in chunks for entry in chunk.logprobs)
            prompt = (whole.prompt_logprobs or ()) if fields.get("echo") else ()
            assert streamed == (*prompt, *(whole.logprobs or ()))
            assert chunks[-1].result is not None
            assert chunks[-1].result.logprobs == whole.logprobs
            assert chunks[-1].logprobs == ()


async def test_an_echoed_prompt_begins_the_answer() -> None:
    async with running(build_workshop()) as workshop:
        plain = await workshop.engine.infer(ask("plain", prompt=PROMPT, logprobs=1))
        echoed = await workshop.engine.infer(ask("echoed", prompt=PROMPT, logprobs=1, echo=True))
    assert echoed.text == PROMPT + plain.text
    assert (echoed.token_ids, echoed.usage.completion_tokens) == (plain.token_ids, 8)
    assert echoed.prompt_logprobs is not None
    assert echoed.logprobs is not None
    entries = [*echoed.prompt_logprobs, *echoed.logprobs]
    assert len(entries) == echoed.usage.prompt_tokens + echoed.usage.completion_tokens
    assert "".join(echoed.text[entry.text_offset] for entry in entries) == echoed.text


async def test_no_output_tokens_give_the_prompts_log_probabilities_alone() -> None:
    async with running(build_workshop()) as workshop:
        result = await workshop.engine.infer(ask(prompt=PROMPT, max_tokens=0, logprobs=1, echo=True))
        one = await workshop.engine.infer(ask(prompt="x", max_tokens=0, prompt_logprobs=1))
        nothing = await workshop.engine.infer(ask(prompt="x", max_tokens=0))
        emitted = workshop.recorder.of(FirstToken) + workshop.recorder.of(TokensEmitted)
    assert (result.text, result.token_ids, result.logprobs) == (PROMPT, (), ())
    assert result.prompt_logprobs is not None
    assert len(result.prompt_logprobs) == len(PROMPT)
    assert result.finish_reason is FinishReason.LENGTH
    assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (len(PROMPT), 0)
    assert [entry.logprob for entry in one.prompt_logprobs or ()] == [None]
    assert (nothing.text, nothing.prompt_logprobs) == ("", None)
    assert emitted == []


async def test_a_prompt_that_fills_the_context_is_scored_when_no_token_is_wanted() -> None:
    async with running(build_workshop()) as workshop:
        result = await workshop.engine.infer(ask(prompt="p" * 256, max_tokens=0, prompt_logprobs=0))
    assert len(result.prompt_logprobs or ()) == 256


async def test_bytes_and_offsets_are_right_where_a_character_spans_tokens() -> None:
    answer = "aé🙂b".encode()
    executor = ScriptedExecutor(choose=scripted({"a": [*answer, ByteTokenizer.EOS_ID]}))
    async with running(build_workshop(executor)) as workshop:
        chunks = await collect(workshop, ask(logprobs=0, max_tokens=20))
    result = chunks[-1].result
    assert result is not None
    assert result.logprobs is not None
    assert [entry.data for entry in result.logprobs[:-1]] == [bytes([byte]) for byte in answer]
    assert [entry.text_offset for entry in result.logprobs] == [0, 1, 1, 2, 2, 2, 2, 3, 4]
    assert result.logprobs[-1].is_control
    # A chunk carries the tokens of its text, all bytes of it.
    for chunk in chunks:
        data = b"".join(entry.data for entry in chunk.logprobs if not entry.is_control)
        assert data.decode() == chunk.text


async def test_a_prompt_that_ends_within_a_character_keeps_its_offsets() -> None:
    ids = tuple("é🙂".encode())[:4]
    async with running(build_workshop()) as workshop:
        request = replace(ask(prompt_logprobs=0, max_tokens=0), prompt=TokenPrompt(ids))
        result: InferenceResult = await workshop.engine.infer(request)
    assert [entry.text_offset for entry in result.prompt_logprobs or ()] == [0, 0, 1, 1]


@pytest.mark.parametrize("field", ["logprobs", "prompt_logprobs"])
@pytest.mark.parametrize("value", [-1, 21, 16384, True, 1.5, "5"])
def test_a_count_out_of_range_is_refused_by_name(field: str, value: object) -> None:
    from ferrum.core.errors import InvalidRequest

    with pytest.raises(InvalidRequest, match="20" if type(value) is int else "integer") as refusal:
        ask(**{field: value})
    assert refusal.value.param == field
