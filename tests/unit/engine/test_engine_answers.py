"""What a request is answered: text, reasons, counts, the same for every door."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from engine_factory import ask, build_workshop, running

from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.errors import ChatTemplateError, ContextLengthExceeded, InvalidRequest
from ferrum.core.request import (
    ChatPrompt,
    FinishReason,
    InferenceRequest,
    InferenceResult,
    TextPrompt,
    TokenPrompt,
    Usage,
)
from ferrum.core.sampling_params import SamplingParams
from ferrum.engine.engine import ContinuousBatchEngine
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.testing.scripted_executor import ScriptedExecutor, scripted

EOS = ByteTokenizer.EOS_ID


def _says(text: bytes, *, ends: bool = True) -> ScriptedExecutor:
    return ScriptedExecutor(choose=scripted({"a": [*text, EOS] if ends else list(text)}))


async def _stream(engine: ContinuousBatchEngine, request: InferenceRequest) -> tuple[str, InferenceResult]:
    chunks = [chunk async for chunk in engine.infer_stream(request)]
    assert all(chunk.result is None and chunk.text for chunk in chunks[:-1])
    assert chunks[-1].text == ""
    assert chunks[-1].result is not None
    return "".join(chunk.text for chunk in chunks), chunks[-1].result


async def test_an_end_token_ends_the_answer_and_is_counted_but_not_shown() -> None:
    async with running(build_workshop(_says(b"fine"))) as workshop:
        result = await workshop.engine.infer(ask())
    assert (result.text, result.finish_reason) == ("fine", FinishReason.EOS)
    assert result.token_ids == (*b"fine", EOS)
    assert result.usage == Usage(prompt_tokens=5, completion_tokens=5)


async def test_max_tokens_ends_the_answer_with_reason_length() -> None:
    async with running(build_workshop(_says(b"endless", ends=False))) as workshop:
        result = await workshop.engine.infer(ask(max_tokens=3))
    assert (result.text, result.finish_reason) == ("end", FinishReason.LENGTH)
    assert result.usage.completion_tokens == 3


async def test_an_end_token_at_the_limit_is_an_end_and_not_a_length() -> None:
    async with running(build_workshop(_says(b"ab"))) as workshop:
        assert (await workshop.engine.infer(ask(max_tokens=3))).finish_reason is FinishReason.EOS


async def test_ignored_end_tokens_count_and_do_not_end() -> None:
    async with running(build_workshop(_says(b"ab"))) as workshop:
        result = await workshop.engine.infer(ask(max_tokens=6, ignore_eos=True))
    assert (result.text, result.finish_reason) == ("ab", FinishReason.LENGTH)
    assert result.token_ids == (*b"ab", EOS, EOS, EOS, EOS)


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        (("lo w",), "hel"),
        (("world", "lo"), "hel"),
        (("orld", "wor"), "hello "),
        (("hello worldly",), "hello world"),
        (("d",), "hello worl"),
        (("h",), ""),
    ],
)
async def test_stops_across_tokens_cut_stream_and_whole_answer_alike(
    stop: tuple[str, ...], text: str
) -> None:
    for expected in ({"max_tokens": 30}, {"max_tokens": 11}):
        async with running(build_workshop(_says(b"hello world"))) as workshop:
            whole = await workshop.engine.infer(ask(stop=stop, **expected))
        async with running(build_workshop(_says(b"hello world"))) as workshop:
            streamed, result = await _stream(workshop.engine, ask(stop=stop, **expected))
        assert streamed == whole.text == result.text == text
        reason = FinishReason.STOP if text != "hello world" else whole.finish_reason
        assert (whole.finish_reason, result.finish_reason) == (reason, reason)


async def test_every_piece_of_an_answer_as_stop_cuts_before_its_first_occurrence() -> None:
    answer = "abcabdabcabe"
    pieces = {answer[i : i + n] for n in range(1, 5) for i in range(len(answer) - n + 1)}
    for piece in sorted(pieces):
        async with running(build_workshop(_says(answer.encode()))) as workshop:
            streamed, result = await _stream(workshop.engine, ask(max_tokens=30, stop=(piece,)))
        assert streamed == result.text == answer.split(piece)[0]
        assert result.finish_reason is FinishReason.STOP


async def test_characters_are_streamed_whole() -> None:
    text = "naïve 🙂 日本"
    async with running(build_workshop(_says(text.encode()))) as workshop:
        stream = await workshop.engine.open_stream(ask(max_tokens=60))
        pieces = [chunk.text async for chunk in stream]
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces)


async def test_a_character_cut_off_by_the_limit_becomes_a_replacement_in_both_doors() -> None:
    async with running(build_workshop(_says("🙂".encode()))) as workshop:
        whole = await workshop.engine.infer(ask(max_tokens=3))
    async with running(build_workshop(_says("🙂".encode()))) as workshop:
        streamed, _ = await _stream(workshop.engine, ask(max_tokens=3))
    assert whole.text == streamed == "\ufffd"
    assert whole.finish_reason is FinishReason.LENGTH


async def test_a_missing_seed_is_drawn_and_reported_and_reproduces_the_answer() -> None:
    async with running(build_workshop(config=EngineConfig(prefix_cache=False))) as workshop:
        first = await workshop.engine.infer(ask(temperature=1.0, seed=None))
        again = await workshop.engine.infer(ask(temperature=1.0, seed=first.seed))
        other = await workshop.engine.infer(ask(temperature=1.0, seed=None))
    assert again == first
    assert other.seed != first.seed


async def test_negative_seeds_are_kept_as_they_were_given() -> None:
    async with running(build_workshop()) as workshop:
        assert (await workshop.engine.infer(ask(temperature=1.0, seed=-1))).seed == -1


async def test_without_max_tokens_the_answer_may_fill_the_context() -> None:
    async with running(build_workshop(config=EngineConfig(max_model_len=20))) as workshop:
        result = await workshop.engine.infer(ask(prompt="x" * 12, max_tokens=None))
    assert result.usage == Usage(prompt_tokens=12, completion_tokens=8)
    assert result.finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("prompt_length", "max_tokens", "numbers"),
    [(12, 9, (20, 12, 9)), (20, None, (20, 20, 1)), (21, None, (20, 21, 1)), (500, 1, (20, 500, 1))],
)
async def test_what_does_not_fit_the_context_is_refused_with_the_three_numbers(
    prompt_length: int, max_tokens: int | None, numbers: tuple[int, int, int]
) -> None:
    async with running(build_workshop(config=EngineConfig(max_model_len=20))) as workshop:
        with pytest.raises(ContextLengthExceeded) as caught:
            await workshop.engine.infer(ask(prompt="x" * prompt_length, max_tokens=max_tokens))
        exact = await workshop.engine.infer(ask(prompt="x" * 12, max_tokens=8))
    error = caught.value
    assert (error.capacity, error.input_tokens, error.output_tokens) == numbers
    assert exact.usage.completion_tokens == 8


async def test_the_context_is_the_smallest_of_model_pool_and_setting() -> None:
    for config, expected in ((EngineConfig(), 256), (EngineConfig(max_model_len=100), 100)):
        async with running(build_workshop(config=config)) as workshop:
            assert workshop.engine.context_length == expected


async def test_an_empty_prompt_is_refused_unless_the_tokenizer_begins_prompts_itself() -> None:
    async with running(build_workshop()) as workshop:
        with pytest.raises(InvalidRequest, match="prompt: must not be empty"):
            await workshop.engine.infer(ask(prompt=""))
    async with running(build_workshop(tokenizer=ByteTokenizer(adds_bos=True))) as workshop:
        result = await workshop.engine.infer(ask(prompt=""))
    assert result.usage.prompt_tokens == 1


@pytest.mark.parametrize("prompt", [TokenPrompt(()), TokenPrompt((1, -1)), TokenPrompt((258,))])
async def test_token_prompts_are_checked(prompt: TokenPrompt) -> None:
    async with running(build_workshop()) as workshop:
        with pytest.raises(InvalidRequest) as caught:
            await workshop.engine.infer(InferenceRequest("a", prompt, SamplingParams(max_tokens=1)))
        assert caught.value.param == "prompt"
        good = InferenceRequest("a", TokenPrompt((257, 5)), SamplingParams(max_tokens=1))
        assert (await workshop.engine.infer(good)).usage.prompt_tokens == 2


async def test_half_a_surrogate_pair_is_refused() -> None:
    async with running(build_workshop()) as workshop:
        with pytest.raises(InvalidRequest):
            await workshop.engine.infer(ask(prompt="\ud800"))


async def test_a_chat_without_a_template_is_refused() -> None:
    chat = ChatPrompt([{"role": "user", "content": "hi"}])
    async with running(build_workshop()) as workshop:
        with pytest.raises(ChatTemplateError):
            await workshop.engine.infer(InferenceRequest("a", chat))


async def test_requests_together_get_the_tokens_they_get_alone() -> None:
    requests = [
        ask(str(index), prompt="p" * (1 + 7 * index), max_tokens=3 + index, temperature=index % 2, seed=index)
        for index in range(12)
    ]
    alone = []
    for request in requests:
        async with running(build_workshop()) as workshop:
            alone.append(await workshop.engine.infer(request))
    for chunk_tokens in (1, 7, 64):
        scheduler = SchedulerConfig(prefill_step_chunk=chunk_tokens, active_decode_prefill_chunk=chunk_tokens)
        config = EngineConfig(scheduler=scheduler, prefix_cache=False)
        async with running(build_workshop(config=config)) as workshop:
            together = await asyncio.gather(*map(workshop.engine.infer, requests))
        assert together == alone


def test_generate_answers_in_order_and_feeds_more_than_the_queue_holds() -> None:
    workshop = build_workshop(scheduler=SchedulerConfig(max_running_requests=2, max_waiting_requests=1))
    requests = [ask(str(index), prompt="x" * (1 + index)) for index in range(20)]
    results = workshop.engine.generate(requests)
    assert [result.request_id for result in results] == [str(index) for index in range(20)]
    assert [result.usage.prompt_tokens for result in results] == list(range(1, 21))
    workshop.engine.close()
    workshop.assert_nothing_is_held()


def test_generate_checks_everything_before_it_runs_anything() -> None:
    workshop = build_workshop()
    with pytest.raises(InvalidRequest):
        workshop.engine.generate([ask("good"), InferenceRequest("bad", TextPrompt(""))])
    assert workshop.executor.num_steps == 0
    assert workshop.engine.generate([]) == []
    workshop.engine.close()
    workshop.assert_nothing_is_held()


async def test_a_result_carries_a_token_trace_when_it_is_asked_for() -> None:
    async with running(build_workshop()) as workshop:
        plain = await workshop.engine.infer(ask("plain", "hello", max_tokens=3))
        traced = await workshop.engine.infer(
            replace(ask("traced", "hello", max_tokens=3), wants_token_trace=True)
        )
    assert plain.token_trace is None
    trace = traced.token_trace
    assert trace is not None
    assert trace.generated.prefix == traced.token_ids == plain.token_ids
    assert (trace.prompt.count, trace.seed, trace.max_tokens) == (traced.usage.prompt_tokens, traced.seed, 3)
