"""Drafted tokens make steps fewer and change nothing else: tokens, digests, ends, counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from engine_factory import Workshop, ask, build_workshop, running
from teachable_drafter import Answer, TeachableDrafter, knowing

from ferrum.core.config import EngineConfig
from ferrum.core.drafting import DraftWish
from ferrum.core.events import TokensDrafted
from ferrum.core.request import FinishReason, InferenceRequest, InferenceResult
from ferrum.core.speculation_config import SpeculationConfig, SpeculationMethod
from ferrum.core.step import StepPlan
from ferrum.execution.executor import ExecutorCapacity
from ferrum.execution.speculation.ngram_drafter import NgramDrafter
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.testing.scripted_executor import Choose, ScriptedExecutor, letter_of_history, scripted

TEXT = "the quick brown fox jumps"
CONFIG = EngineConfig(speculation=SpeculationConfig(SpeculationMethod.NGRAM, num_tokens=4))


def speculating(
    answer: Answer, choose: Choose = letter_of_history, config: EngineConfig = CONFIG, **executor: object
) -> Workshop:
    drafter = TeachableDrafter(answer)
    workshop = build_workshop(
        ScriptedExecutor(choose=choose, keeps_plans=True, **executor),
        config=config,
        drafter=drafter,
    )
    return workshop


def saying(text: str, *more: int) -> Choose:
    return scripted({"a": [*text.encode(), *more]})


async def answer_of(workshop: Workshop, request: InferenceRequest) -> InferenceResult:
    async with running(workshop):
        return await workshop.engine.infer(request)


def sizes(workshop: Workshop) -> list[int]:
    """Tokens of each step after the prompt."""
    return [plan.num_tokens for plan in workshop.executor.plans[1:]]


async def test_right_drafts_make_steps_fewer() -> None:
    workshop = speculating(knowing(TEXT, 5), saying(TEXT))
    result = await answer_of(workshop, ask(max_tokens=25))
    assert result.text == TEXT
    # One from the prompt, then five from each step but the last, which has room for four.
    assert sizes(workshop) == [5, 5, 5, 5, 4]
    assert (result.draft_use.drafted, result.draft_use.accepted) == (19, 19)
    assert result.usage.completion_tokens == 25


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("num_right", [0, 1, 2, 3])
async def test_wrong_drafts_change_nothing(num_right: int, temperature: float) -> None:
    request = ask(max_tokens=23, temperature=temperature)
    plain = await answer_of(build_workshop(), request)

    def answer(wish: DraftWish) -> Sequence[int]:
        right = plain.token_ids[len(wish.token_ids) - 5 :]
        return [*right[:num_right], 1, *right[num_right + 1 :]]

    workshop = speculating(answer)
    result = await answer_of(workshop, request)
    assert result.token_ids == plain.token_ids
    assert result.logit_digests == plain.logit_digests
    assert (result.text, result.finish_reason, result.usage) == (
        plain.text,
        plain.finish_reason,
        plain.usage,
    )
    assert len(workshop.executor.plans) == 1 + -(-22 // (num_right + 1))


@pytest.mark.parametrize("stop", ["quick", " b", "fox jumps", "s", "ck br"])
@pytest.mark.parametrize("num_tokens", [1, 4, 13, 40])
async def test_a_stop_text_inside_accepted_tokens_ends_the_answer_there(stop: str, num_tokens: int) -> None:
    config = EngineConfig(speculation=SpeculationConfig(SpeculationMethod.NGRAM, num_tokens=num_tokens))
    request = ask(max_tokens=40, stop=(stop,))
    plain = await answer_of(build_workshop(ScriptedExecutor(choose=saying(TEXT))), request)
    result = await answer_of(speculating(knowing(TEXT, 5), saying(TEXT), config), request)
    assert result.text == TEXT[: TEXT.index(stop)]
    assert (result.token_ids, result.usage, result.finish_reason) == (
        plain.token_ids,
        plain.usage,
        FinishReason.STOP,
    )


async def test_tokens_behind_an_end_token_do_not_count() -> None:
    end = ByteTokenizer.EOS_ID
    workshop = speculating(lambda wish: [*b"bc", end, *b"never"], saying("abc", end, *b"never said"))
    result = await answer_of(workshop, ask(max_tokens=40))
    assert result.token_ids == (*b"abc", end)
    assert (result.text, result.finish_reason) == ("abc", FinishReason.EOS)
    assert result.usage.completion_tokens == 4
    assert result.draft_use.drafted == 4
    assert result.draft_use.accepted == 3


@pytest.mark.parametrize("max_tokens", range(1, 8))
async def test_exactly_max_tokens_are_written(max_tokens: int) -> None:
    workshop = speculating(knowing(TEXT, 5), saying(TEXT))
    result = await answer_of(workshop, ask(max_tokens=max_tokens))
    assert (result.text, result.finish_reason) == (TEXT[:max_tokens], FinishReason.LENGTH)


async def test_drafts_stay_within_the_context() -> None:
    config = EngineConfig(speculation=SpeculationConfig(SpeculationMethod.NGRAM, num_tokens=12))
    capacity = ExecutorCapacity(4, 4, 16, 258)
    workshop = speculating(knowing(TEXT, 5), saying(TEXT), config, capacity=capacity)
    result = await answer_of(workshop, ask(max_tokens=None))
    assert result.text == TEXT[:11]
    parts = [part for plan in workshop.executor.plans for part in plan.parts]
    # The last token that may come is chosen after the one before it.
    assert max(part.start_position + len(part.token_ids) for part in parts) == 15


def forgetful(fail: Callable[[StepPlan], bool]) -> Callable[[StepPlan], None]:
    def before_step(plan: StepPlan) -> None:
        if fail(plan):
            raise OSError("the device stumbled")

    return before_step


async def test_a_step_that_fails_for_its_drafts_is_done_without_them() -> None:
    workshop = speculating(
        knowing(TEXT, 5),
        saying(TEXT),
        before_step=forgetful(lambda plan: any(part.num_drafts for part in plan.parts)),
    )
    result = await answer_of(workshop, ask(max_tokens=10))
    assert result.text == TEXT[:10]
    assert result.draft_use.drafted == 0


async def test_a_drafter_that_fails_is_not_asked_again() -> None:
    calls = []

    def answer(wish: DraftWish) -> Sequence[int]:
        calls.append(wish.request_id)
        raise OSError("no idea")

    result = await answer_of(speculating(answer, saying(TEXT)), ask(max_tokens=10))
    assert result.text == TEXT[:10]
    assert calls == ["a"]


async def test_a_request_that_stops_running_leaves_the_drafter() -> None:
    workshop = speculating(knowing(TEXT, 5), saying(TEXT))
    async with running(workshop):
        await workshop.engine.infer(ask(max_tokens=3))
        drafter = workshop.engine._speculation._drafter
        assert isinstance(drafter, TeachableDrafter)
        assert drafter.left == ["a"]
    assert drafter.is_closed


async def test_observers_hear_what_became_of_drafts() -> None:
    workshop = speculating(lambda wish: [*b"he", 1, 1], saying(TEXT))
    await answer_of(workshop, ask(max_tokens=6))
    events = [event for event in workshop.recorder.events if isinstance(event, TokensDrafted)]
    assert (events[0].num_drafted, events[0].num_accepted) == (4, 2)
    metrics = workshop.engine.metrics()
    assert f"ferrum_engine_draft_tokens_total {sum(event.num_drafted for event in events)}.0" in metrics
    assert f"ferrum_engine_accepted_draft_tokens_total {sum(e.num_accepted for e in events)}.0" in metrics


async def test_a_text_that_repeats_itself_is_drafted_from_itself() -> None:
    chorus = "la la li lo. " * 12
    executor = ScriptedExecutor(choose=saying(chorus), keeps_plans=True)
    workshop = build_workshop(executor, config=CONFIG, drafter=NgramDrafter())
    result = await answer_of(workshop, ask(max_tokens=120))
    assert result.text == chorus[:120]
    assert len(executor.plans) < 50
    assert result.draft_use.accepted > 70
