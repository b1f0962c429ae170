"""Rules of sampling in the engine: tokens are a function of request and seed, whatever happens to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import numpy as np
import pytest
from engine_factory import Workshop, ask, build_workshop, running
from teachable_drafter import TeachableDrafter

from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.drafting import DraftWish
from ferrum.core.errors import InvalidRequest
from ferrum.core.events import RequestQueued
from ferrum.core.request import FinishReason, InferenceRequest, InferenceResult
from ferrum.core.speculation_config import SpeculationConfig, SpeculationMethod
from ferrum.core.step import SamplingInstruction
from ferrum.execution.executor import ExecutorCapacity
from ferrum.sampling.reference_sampler import choose
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.testing.scripted_executor import History, ScriptedExecutor

PROMPT = "abcabcmabca"
EOS = ByteTokenizer.EOS_ID
SPECULATING = EngineConfig(speculation=SpeculationConfig(SpeculationMethod.NGRAM, num_tokens=4))

RULES: list[dict[str, object]] = [
    {"repetition_penalty": 1.4},
    {"presence_penalty": 1.5, "frequency_penalty": 0.7, "repeat_last_n": 9},
    {"dry_multiplier": 2.0, "dry_allowed_length": 1, "dry_sequence_breakers": ("m",)},
    {"logit_bias": {97: 3.0, 98: -100.0}, "typical_p": 0.9, "top_n_sigma": 1.5},
    {"xtc_probability": 0.5, "xtc_threshold": 0.05, "dynatemp_range": 0.5},
    {"bad_words": ("ab", "d"), "allowed_token_ids": tuple(range(97, 109))},
    {"temperature": 0.0, "repetition_penalty": 1.8, "frequency_penalty": 0.5},
]


def of_the_last_token(request_id: str, history: History, sampling: SamplingInstruction) -> int:
    """Chosen from logits that know the last token only, so that the rules decide where the text goes."""
    logits = np.full(258, -30, np.float32)
    logits[97:112] = np.random.default_rng(history[-1]).normal(0, 1, 15)
    logits[[256, 10]] = -3
    return choose(logits, sampling)


def workshop_of(num_blocks: int = 64, config: EngineConfig | None = None, **more: object) -> Workshop:
    capacity = ExecutorCapacity(num_blocks, block_tokens=4, context_length=256, vocabulary_size=258)
    executor = ScriptedExecutor(choose=of_the_last_token, capacity=capacity)
    return build_workshop(executor, config=config, **more)


def requests_of(rules: dict[str, object], count: int = 4) -> list[InferenceRequest]:
    asked = {"temperature": 1.0, "max_tokens": 40, "ignore_eos": True, **rules}
    return [ask(f"r{index}", PROMPT[index:], seed=index, **asked) for index in range(count)]


async def answers(workshop: Workshop, requests: Sequence[InferenceRequest]) -> list[InferenceResult]:
    async with running(workshop):
        return list(await asyncio.gather(*map(workshop.engine.infer, requests)))


async def alone(requests: Sequence[InferenceRequest]) -> list[tuple[int, ...]]:
    return [(await answers(workshop_of(), [request]))[0].token_ids for request in requests]


def wait_for_all(workshop: Workshop, count: int) -> None:
    """Holds the first step until all are there: an engine may be done with one before others come."""
    while len(workshop.recorder.of(RequestQueued)) < count:
        time.sleep(0.001)


@pytest.mark.parametrize("rules", RULES, ids=lambda rules: "+".join(rules))
async def test_company_and_preemption_change_no_token(rules: dict[str, object]) -> None:
    requests = requests_of(rules)
    expected = await alone(requests)
    assert [result.token_ids for result in await answers(workshop_of(), requests)] == expected
    # Room for one whole answer, and none is promised more than its beginning.
    crowded = workshop_of(14, EngineConfig(scheduler=SchedulerConfig(expected_output_tokens=1)))
    crowded.executor.before_step = lambda plan: wait_for_all(crowded, len(requests))
    results = await answers(crowded, requests_of({**rules, "max_tokens": None}))
    assert "ferrum_engine_preemptions_total 0.0" not in crowded.engine.metrics()
    assert [result.token_ids[:40] for result in results] == expected


@pytest.mark.parametrize("rules", RULES, ids=lambda rules: "+".join(rules))
@pytest.mark.parametrize("num_right", [0, 2, 9])
async def test_drafts_change_no_token(rules: dict[str, object], num_right: int) -> None:
    request = requests_of(rules, 1)[0]
    (expected,) = await alone([request])

    def answer(wish: DraftWish) -> Sequence[int]:
        right = expected[len(wish.token_ids) - len(PROMPT) :]
        return [*right[:num_right], ord("h"), *right[num_right + 1 :]]

    drafter = TeachableDrafter(answer)
    (result,) = await answers(workshop_of(config=SPECULATING, drafter=drafter), [request])
    assert result.token_ids == expected
    assert result.draft_use.drafted > 0
    if num_right:
        assert result.draft_use.accepted > 0


async def test_rules_change_what_is_said() -> None:
    plain = await alone(requests_of({}, 1))
    for rules in RULES:
        assert await alone(requests_of(rules, 1)) != plain, rules


async def test_no_answer_ends_before_its_least_length() -> None:
    def ending(request_id: str, history: History, sampling: SamplingInstruction) -> int:
        logits = np.full(258, -30, np.float32)
        logits[[EOS, 97]] = [10, 0]
        return choose(logits, sampling)

    workshop = build_workshop(ScriptedExecutor(choose=ending))
    requests = [ask("a", max_tokens=20, min_tokens=7), ask("b", max_tokens=20)]
    longer, shorter = await answers(workshop, requests)
    assert (longer.text, longer.finish_reason) == ("a" * 7, FinishReason.EOS)
    assert (shorter.text, shorter.finish_reason) == ("", FinishReason.EOS)


@pytest.mark.parametrize(
    ("param", "rules"),
    [
        ("logit_bias", {"logit_bias": {258: 1.0}}),
        ("allowed_token_ids", {"allowed_token_ids": (258,)}),
        ("allowed_token_ids", {"allowed_token_ids": (97, 98), "bad_words": ("a", "b")}),
        ("allowed_token_ids", {"allowed_token_ids": (EOS,), "min_tokens": 1}),
    ],
)
async def test_what_this_model_cannot_have_is_refused_before_anything_runs(
    param: str, rules: dict[str, object]
) -> None:
    workshop = workshop_of()
    async with running(workshop):
        with pytest.raises(InvalidRequest) as refusal:
            await workshop.engine.infer(ask(**rules))
        assert refusal.value.param == param
        workshop.assert_nothing_is_held()
