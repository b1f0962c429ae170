"""Constraints on a real model at a high temperature, where every gap in a grammar shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from ferrum import LLM, EngineConfig, SamplingParams
from ferrum.core.config import SchedulerConfig
from ferrum.core.constraint import Constraint
from ferrum.core.errors import InvalidConstraint
from ferrum.core.request import FinishReason, InferenceResult
from schema_corpus import grammars, regexes, schemas

pytestmark = pytest.mark.models

MESSAGES = [{"role": "user", "content": "Give me an example."}]
TEMPERATURE = 1.5


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> Iterator[LLM]:
    scheduler = SchedulerConfig(max_waiting_requests=512)
    with LLM(smollm2_path, config=EngineConfig(max_model_len=512, scheduler=scheduler)) as made:
        yield made


def answers(
    llm: LLM, constraints: Sequence[Constraint], max_tokens: int
) -> tuple[list[InferenceResult | None], list[InvalidConstraint]]:
    """The answers of those that are accepted, None for the others, and why."""
    accepted, refusals = [], []
    for index, constraint in enumerate(constraints):
        try:
            llm.chat(MESSAGES, SamplingParams(max_tokens=1, temperature=0, constraint=constraint))
            accepted.append(index)
        except InvalidConstraint as error:
            refusals.append(error)
    wishes = [
        SamplingParams(
            max_tokens=max_tokens, temperature=TEMPERATURE, seed=index, constraint=constraints[index]
        )
        for index in accepted
    ]
    results = dict(zip(accepted, llm.chat([MESSAGES] * len(accepted), wishes), strict=True))
    return [results.get(index) for index in range(len(constraints))], refusals


def check_schemas(llm: LLM, count: int, max_tokens: int) -> None:
    corpus = schemas(count)
    results, refusals = answers(llm, [Constraint.json_schema(each) for each in corpus], max_tokens)
    assert len(refusals) <= count // 10
    assert all(error.keyword is not None and error.pointer is not None for error in refusals)
    num_whole = 0
    for schema, result in zip(corpus, results, strict=True):
        if result is None:
            continue
        assert result.finish_reason in (FinishReason.EOS, FinishReason.LENGTH)
        if result.finish_reason is FinishReason.LENGTH:
            continue
        num_whole += 1
        checker = Draft202012Validator.FORMAT_CHECKER
        Draft202012Validator(schema, format_checker=checker).validate(json.loads(result.text))
        assert result.text.strip() == result.text
    assert num_whole > count * 0.4


def test_twenty_schemas_at_a_high_temperature(llm: LLM) -> None:
    check_schemas(llm, 20, max_tokens=100)


@pytest.mark.slow
def test_four_hundred_schemas_at_a_high_temperature(llm: LLM) -> None:
    check_schemas(llm, 400, max_tokens=120)


@pytest.mark.slow
def test_a_hundred_expressions_at_a_high_temperature(llm: LLM) -> None:
    corpus = regexes(100)
    results, refusals = answers(llm, [Constraint.regex(each) for each in corpus], max_tokens=60)
    assert len(refusals) <= 10
    for pattern, result in zip(corpus, results, strict=True):
        if result is not None and result.finish_reason is FinishReason.EOS:
            assert re.fullmatch(pattern, result.text), pattern
    assert sum(each is not None and each.finish_reason is FinishReason.EOS for each in results) > 50


@pytest.mark.slow
def test_thirty_grammars_at_a_high_temperature(llm: LLM) -> None:
    results, refusals = answers(llm, [Constraint.grammar(each) for each in grammars(30)], max_tokens=60)
    assert not refusals
    assert sum(each is not None and each.finish_reason is FinishReason.EOS for each in results) >= 20


def test_the_beginning_that_max_tokens_leaves_is_the_beginning_of_the_whole_answer(llm: LLM) -> None:
    constraint = Constraint.json_schema(schemas(1)[0])
    whole = llm.chat(
        MESSAGES, SamplingParams(max_tokens=200, temperature=1.5, seed=3, constraint=constraint)
    )[0]
    for most in (1, 3, 5, 8):
        params = SamplingParams(max_tokens=most, temperature=1.5, seed=3, constraint=constraint)
        cut = llm.chat(MESSAGES, params)[0]
        assert cut.token_ids == whole.token_ids[:most]
        if most < len(whole.token_ids):
            assert cut.finish_reason is FinishReason.LENGTH


def test_a_constrained_answer_is_the_same_in_company(llm: LLM) -> None:
    corpus = [Constraint.json_schema(each) for each in schemas(12)]
    wishes = [
        SamplingParams(max_tokens=40, temperature=1.5, seed=index, constraint=each)
        for index, each in enumerate(corpus)
    ]
    together = llm.chat([MESSAGES] * len(wishes), wishes)
    for index in (0, 5, 11):
        assert llm.chat(MESSAGES, wishes[index])[0].token_ids == together[index].token_ids
