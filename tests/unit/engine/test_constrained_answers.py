"""Answers under a constraint: what ends them, what breaks them, and that company changes nothing."""

from __future__ import annotations

import asyncio
import hashlib
import json

import numpy as np
import pytest
from engine_factory import ask, build_workshop, running

from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.constraint import Constraint
from ferrum.core.errors import AnswerCutByStop, ForbiddenToken, InvalidConstraint
from ferrum.core.request import FinishReason, InferenceRequest, InferenceResult
from ferrum.core.step import SamplingInstruction
from ferrum.execution.executor import ExecutorCapacity
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.testing.scripted_executor import History, ScriptedExecutor, scripted

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "n": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "n"],
    "additionalProperties": False,
}
EOS = ByteTokenizer.EOS_ID


def any_allowed(request_id: str, history: History, sampling: SamplingInstruction) -> int:
    """One of the tokens that the mask allows; depends on the history and the seed alone."""
    draw = int.from_bytes(hashlib.sha256(repr((history, sampling.seed)).encode()).digest()[:4], "little")
    if sampling.mask is None:
        return ord("a") + draw % 26
    ids = np.flatnonzero(np.unpackbits(sampling.mask.view(np.uint8), bitorder="little"))
    return int(ids[draw % len(ids)])


def wishes(count: int, **more: object) -> list[InferenceRequest]:
    constraint = Constraint.json_schema(SCHEMA)
    return [
        ask(
            f"r{seed}",
            prompt=f"prompt {seed}",
            max_tokens=200,
            seed=seed,
            temperature=1.0,
            constraint=constraint,
            **more,
        )
        for seed in range(count)
    ]


async def test_answers_are_values_of_the_schema_and_end_with_them() -> None:
    async with running(
        build_workshop(ScriptedExecutor(choose=any_allowed, capacity=_capacity(2048)))
    ) as workshop:
        results = await asyncio.gather(*map(workshop.engine.infer, wishes(12)))
        for result in results:
            assert result.finish_reason is FinishReason.EOS
            value = json.loads(result.text)
            assert set(value) == {"name", "n"}
            # The last token is the value's own: no step was spent on an end token.
            assert bytes(result.token_ids).decode() == result.text
        workshop.assert_nothing_is_held()


async def test_company_chunks_and_preemption_change_no_token() -> None:
    requests = wishes(8)
    async with running(
        build_workshop(ScriptedExecutor(choose=any_allowed, capacity=_capacity(2048)))
    ) as workshop:
        alone = [await workshop.engine.infer(request) for request in requests]
    tight = SchedulerConfig(
        max_num_batched_tokens=9, prefill_step_chunk=3, max_running_requests=8, expected_output_tokens=1
    )
    executor = ScriptedExecutor(choose=any_allowed, capacity=_capacity(80))
    async with running(build_workshop(executor, scheduler=tight)) as workshop:
        free = [InferenceRequest(f"f{i}", each.prompt, each.sampling) for i, each in enumerate(requests)]
        together = await asyncio.gather(*map(workshop.engine.infer, [*requests, *free]))
    assert [each.token_ids for each in together] == [each.token_ids for each in alone] * 2


@pytest.mark.parametrize(("num_blocks", "batch_tokens"), [(2048, 512), (80, 9)])
async def test_tokens_that_can_only_come_are_computed_together_and_change_nothing(
    num_blocks: int, batch_tokens: int
) -> None:
    """With every choice made, and with those left out that the grammar makes."""
    outcomes, num_steps = [], []
    scheduler = SchedulerConfig(
        max_num_batched_tokens=batch_tokens, max_running_requests=8, expected_output_tokens=1
    )
    for config in (
        EngineConfig(scheduler=scheduler, logit_digests=True),
        EngineConfig(scheduler=scheduler),
    ):
        executor = ScriptedExecutor(choose=any_allowed, capacity=_capacity(num_blocks))
        async with running(build_workshop(executor, config=config)) as workshop:
            results = [await workshop.engine.infer(each) for each in wishes(4)]
            num_steps.append(executor.num_steps)
            results += await asyncio.gather(*map(workshop.engine.infer, wishes(16)[4:]))
            outcomes.append([(each.token_ids, each.text, each.finish_reason, each.usage) for each in results])
    assert [(ids, text, reason) for ids, text, reason, _ in outcomes[0]] == [
        (ids, text, reason) for ids, text, reason, _ in outcomes[1]
    ]
    for (ids, *_, usage), (*_, other) in zip(*outcomes, strict=True):
        assert usage.completion_tokens == other.completion_tokens == len(ids)
    assert num_steps[1] < 0.8 * num_steps[0]


@pytest.mark.parametrize("most", range(1, 14))
async def test_forced_tokens_end_at_max_tokens_and_at_stop_strings(most: int) -> None:
    constraint = Constraint.grammar('root ::= "yes, of course" | "no"')
    executor = ScriptedExecutor(choose=scripted({"r": list(b"yes")}))
    async with running(build_workshop(executor)) as workshop:
        cut = await workshop.engine.infer(ask("r", max_tokens=most, constraint=constraint))
        assert (cut.text, cut.usage.completion_tokens) == ("yes, of course"[:most], most)
        assert cut.finish_reason is FinishReason.LENGTH
        stop = "yes, of course"[most]
        stopped = await workshop.engine.infer(ask("r", max_tokens=60, stop=(stop,), constraint=constraint))
        assert stopped.text == "yes, of course".partition(stop)[0]
        # One chosen token, the rest forced: one step each for the prompt and for nothing else.
        assert executor.num_steps == 2


async def test_a_request_that_looks_at_log_probabilities_gets_them_for_every_token() -> None:
    constraint = Constraint.grammar('root ::= "yes, of course" | "no"')
    executor = ScriptedExecutor(choose=any_allowed)
    async with running(build_workshop(executor)) as workshop:
        result = await workshop.engine.infer(ask("r", max_tokens=60, logprobs=1, constraint=constraint))
    assert result.logprobs is not None
    assert len(result.logprobs) == len(result.token_ids)


async def test_an_answer_cut_by_max_tokens_says_length_and_is_the_beginning_of_a_value() -> None:
    async with running(build_workshop(ScriptedExecutor(choose=any_allowed))) as workshop:
        for most in range(1, 20):
            sampling = {
                "max_tokens": most,
                "seed": 1,
                "temperature": 1.0,
                "constraint": Constraint.json_schema(SCHEMA),
            }
            result = await workshop.engine.infer(ask(f"r{most}", **sampling))
            try:
                json.loads(result.text)
            except ValueError:
                assert result.finish_reason is FinishReason.LENGTH
                assert result.usage.completion_tokens == most


async def _end(answer: bytes, **more: object) -> InferenceResult:
    executor = ScriptedExecutor(choose=scripted({"r": [*answer, EOS]}))
    async with running(build_workshop(executor)) as workshop:
        return await workshop.engine.infer(ask("r", max_tokens=60, **more))


async def test_a_stop_string_inside_a_json_value_is_an_error_and_inside_other_text_a_stop() -> None:
    with pytest.raises(AnswerCutByStop, match="stop string"):
        await _end(b'{"a": "xy"}', stop=("x",), constraint=Constraint.json_object())
    with pytest.raises(AnswerCutByStop, match="stop string"):
        await _end(b'{"a": 1}', stop=("}",), constraint=Constraint.json_object())
    result = await _end(
        b'{"a": 1}', stop=("}",), include_stop_str_in_output=True, constraint=Constraint.json_object()
    )
    assert result.text == '{"a": 1}'
    result = await _end(b"aaabbb", stop=("ab",), constraint=Constraint.regex("a+b+"))
    assert (result.text, result.finish_reason) == ("aa", FinishReason.STOP)


async def test_text_held_back_for_a_stop_string_is_shown_when_the_value_ends() -> None:
    result = await _end(b"please", stop=("please wait",), constraint=Constraint.grammar('root ::= "please"'))
    assert (result.text, result.finish_reason) == ("please", FinishReason.EOS)


@pytest.mark.parametrize("most", range(1, 10))
async def test_characters_cut_by_max_tokens_are_answered(most: int) -> None:
    constraint = Constraint.grammar('root ::= "🙂" "🙂"')
    executor = ScriptedExecutor(choose=scripted({"r": list("🙂🙂".encode())}))
    async with running(build_workshop(executor)) as workshop:
        result = await workshop.engine.infer(ask("r", max_tokens=most, constraint=constraint))
    assert result.text.replace("\ufffd", "") == "🙂" * (most // 4 if most < 8 else 2)


async def test_an_executor_that_does_not_heed_the_mask_fails_that_request_only() -> None:
    executor = ScriptedExecutor(choose=scripted({"bad": list(b"no json"), "good": list(b"[]")}))
    async with running(build_workshop(executor)) as workshop:
        bad = asyncio.ensure_future(workshop.engine.infer(ask("bad", constraint=Constraint.json_object())))
        good = await workshop.engine.infer(
            ask("good", max_tokens=9, constraint=Constraint.json_schema({"type": "array"}))
        )
        with pytest.raises(ForbiddenToken):
            await bad
        assert good.text == "[]"
        workshop.assert_nothing_is_held()


async def test_a_constraint_that_is_refused_is_refused_before_any_step() -> None:
    executor = ScriptedExecutor()
    async with running(build_workshop(executor)) as workshop:
        for constraint in (Constraint.regex("("), Constraint.json_schema({"uniqueItems": True})):
            with pytest.raises(InvalidConstraint):
                await workshop.engine.infer(ask("r", constraint=constraint))
            with pytest.raises(InvalidConstraint):
                await workshop.engine.open_stream(ask("s", constraint=constraint))
            with pytest.raises(InvalidConstraint):
                await asyncio.to_thread(workshop.engine.generate, [ask("t"), ask("u", constraint=constraint)])
        assert executor.num_steps == 0
        workshop.assert_nothing_is_held()


async def test_an_answer_with_free_reasoning_before_its_value() -> None:
    constraint = Constraint.json_object().after("</think>")
    result = await _end(b'so {be it}</think>\n{"a": 1}', constraint=constraint)
    assert (result.text, result.finish_reason) == ('so {be it}</think>\n{"a": 1}', FinishReason.EOS)


async def test_a_long_compilation_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    may_end = threading.Event()
    async with running(build_workshop(ScriptedExecutor(choose=any_allowed))) as workshop:
        compiler = workshop.engine._constraints._compiler()
        build = compiler._build
        monkeypatch.setattr(
            compiler, "_build", lambda each: (each.source == "slow" and may_end.wait(10), build(each))[1]
        )
        slow = asyncio.ensure_future(workshop.engine.infer(ask("slow", constraint=Constraint.regex("slow"))))
        await asyncio.sleep(0)
        await asyncio.wait_for(workshop.engine.infer(ask("quick", max_tokens=8)), 5)
        other = ask("other", constraint=Constraint.choice(["yes", "no"]))
        assert (await asyncio.wait_for(workshop.engine.infer(other), 5)).text in ("yes", "no")
        assert not slow.done()
        may_end.set()
        assert (await slow).text == "slow"


def _capacity(num_blocks: int) -> ExecutorCapacity:
    return ExecutorCapacity(num_blocks=num_blocks, block_tokens=4, context_length=512, vocabulary_size=258)
