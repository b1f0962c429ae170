"""What every Executor promises, checked on each one there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ferrum.assembly.stub_executor import StubExecutor
from ferrum.core.step import KnownTokens, SamplingInstruction, SequencePart, StepPlan
from ferrum.execution.executor import Executor, ExecutorCapacity, ResolvedModelPlan, ResourceAuthority
from ferrum.execution.plan_executor import PlanExecutor
from ferrum.execution.reference_choice import choose_tokens
from ferrum.execution.transformers_executor import TransformersExecutor
from ferrum.models.architectures import build_plan
from ferrum.runtimes.native import NativeRuntime
from ferrum.runtimes.numpy_interpreter import InterpreterMode, NumpyInterpreter
from ferrum.runtimes.protocol import Runtime, StepAborted
from ferrum.testing.scripted_causal_model import ScriptedCausalModel
from ferrum.testing.scripted_executor import ScriptedExecutor
from ferrum.weights.checkpoint import open_checkpoint
from tiny_models import write_tiny_llama

GREEDY = SamplingInstruction(0.0, 0, 1.0, 0.0, seed=0, position=0)
DRAWN = SamplingInstruction(1.0, 20, 0.9, 0.01, seed=2**63 + 5, position=0)


def _on_tiny_llama(folder: Path, make: Callable[..., Runtime]) -> PlanExecutor:
    with open_checkpoint(write_tiny_llama(folder / "tiny.gguf")) as checkpoint:
        runtime = make(build_plan(checkpoint, None), checkpoint.tensors, num_blocks=16)
    return PlanExecutor(runtime, ResolvedModelPlan("tiny", 64))


def _exact_interpreter(*arguments: object, num_blocks: int) -> NumpyInterpreter:
    return NumpyInterpreter(*arguments, num_blocks, InterpreterMode.QUANTISED_EXACT, choose_tokens)


EXECUTORS: dict[str, Callable[[Path], Executor]] = {
    "scripted": lambda folder: ScriptedExecutor(),
    "scripted, engine-managed": lambda folder: ScriptedExecutor(
        resource_authority=ResourceAuthority.ENGINE_MANAGED
    ),
    "stub": lambda folder: StubExecutor(num_sequences=2),
    "one request a forward pass": lambda folder: TransformersExecutor(
        ScriptedCausalModel(), ExecutorCapacity(16, 32, 256, 258)
    ),
    "one token at a time": lambda folder: TransformersExecutor(
        ScriptedCausalModel(takes_chunks=False), ExecutorCapacity(16, 32, 256, 258)
    ),
    "interpreter": lambda folder: _on_tiny_llama(folder, _exact_interpreter),
    "native": lambda folder: _on_tiny_llama(folder, NativeRuntime),
}


@pytest.fixture(params=EXECUTORS)
def executor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Executor]:
    executor = EXECUTORS[request.param](tmp_path)
    executor.prepare_startup()
    yield executor
    executor.close()


def _parts(
    name: str, tokens: list[int], chunk: int, blocks: tuple[int, ...], sampling: SamplingInstruction
) -> list[SequencePart]:
    """The sequence in chunks; only the last chooses."""
    instruction = SamplingInstruction(
        sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p, sampling.seed, len(tokens)
    )
    return [
        SequencePart(
            name,
            tuple(tokens[start : start + chunk]),
            start,
            blocks,
            (instruction,) if start + chunk >= len(tokens) else (),
        )
        for start in range(0, len(tokens), chunk)
    ]


def _answer(executor: Executor, parts: list[SequencePart]) -> int:
    for part in parts[:-1]:
        assert executor.execute(StepPlan((part,))).tokens == ()
    (token,) = executor.execute(StepPlan((parts[-1],))).tokens
    return token.token_id


TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]
BLOCKS = (0, 1, 2)


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN])
def test_chunks_do_not_matter(executor: Executor, sampling: SamplingInstruction) -> None:
    answers = {_answer(executor, _parts("a", TOKENS, chunk, BLOCKS, sampling)) for chunk in (1, 3, 8)}
    assert len(answers) == 1
    assert 0 <= answers.pop() < executor.capacity.vocabulary_size


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN])
def test_company_does_not_matter(executor: Executor, sampling: SamplingInstruction) -> None:
    alone = _answer(executor, _parts("a", TOKENS, 8, BLOCKS, sampling))
    (other,) = _parts("b", [8, 8, 8], 8, (5,), DRAWN)
    (silent, _) = _parts("c", [7] * 6, 3, (6, 7), GREEDY)
    (part,) = _parts("a", TOKENS, 8, (3, 9, 4), sampling)
    result = executor.execute(StepPlan((other, silent, part)))
    assert [token.request_id for token in result.tokens] == ["b", "a"]
    assert result.tokens[1].token_id == alone


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN])
def test_several_choices_of_a_part_are_those_of_as_many_steps(
    executor: Executor, sampling: SamplingInstruction
) -> None:
    apart = [_answer(executor, _parts("a", TOKENS[:end], 8, BLOCKS, sampling)) for end in range(3, 9)]
    choices = tuple(replace(sampling, position=end) for end in range(3, 9))
    (other,) = _parts("b", [8, 8, 8], 8, (5,), DRAWN)
    (head,) = _parts("a", TOKENS[:1], 1, (7, 9, 4), sampling)
    executor.execute(StepPlan((head._replace(choices=()),)))
    rest = SequencePart("a", tuple(TOKENS[1:]), 1, (7, 9, 4), choices)
    for _ in range(2):
        result = executor.execute(StepPlan((other, rest)))
        assert [token.request_id for token in result.tokens] == ["b", *"aaaaaa"]
        assert [token.token_id for token in result.tokens[1:]] == apart


def _score(executor: Executor, chunk: int, company: tuple[SequencePart, ...]) -> list[object]:
    """What is found of all tokens but the first, and of the one that is chosen after them."""
    found: list[object] = []
    for start in range(0, len(TOKENS), chunk):
        ids = tuple(TOKENS[start : start + chunk])
        following = tuple(TOKENS[start + 1 : start + 1 + len(ids)])
        is_last = start + chunk >= len(TOKENS)
        choices = (replace(DRAWN, position=len(TOKENS), logprobs=3),) if is_last else ()
        part = SequencePart("a", ids, start, BLOCKS, choices, scored=KnownTokens(following, 4))
        result = executor.execute(StepPlan((*company, part)))
        (scored,) = result.scored
        assert (scored.request_id, len(scored.rows)) == ("a", len(following))
        found += scored.rows
        found += [(token.token_id, token.logprobs) for token in result.tokens if token.request_id == "a"]
    return found


def test_log_probabilities_do_not_depend_on_chunks_and_company(executor: Executor) -> None:
    (other,) = _parts("b", [8, 8, 8], 8, (5,), replace(DRAWN, logprobs=0))
    alone = _score(executor, 8, ())
    assert len(alone) == len(TOKENS)
    assert _score(executor, 3, (other,)) == _score(executor, 1, ()) == alone


def test_log_probabilities_are_ordered_and_say_the_rank_of_the_token(executor: Executor) -> None:
    *known, (_, chosen) = _score(executor, 8, ())
    assert len(chosen.top_ids) == len(chosen.top_logprobs) == 3
    for row in (*known, chosen):
        assert list(row.top_logprobs) == sorted(row.top_logprobs, reverse=True)
        assert len(set(row.top_ids)) == len(row.top_ids)
        assert all(logprob <= 0 for logprob in (row.logprob, *row.top_logprobs))
    for token_id, row in zip(TOKENS[1:], known, strict=True):
        place = row.top_ids.index(token_id) + 1 if token_id in row.top_ids else None
        assert row.rank == place if place else row.rank > 4


def test_nobody_gets_log_probabilities_who_did_not_ask(executor: Executor) -> None:
    (silent,) = _parts("b", [8, 8, 8], 8, (5,), DRAWN)
    (asking,) = _parts("a", TOKENS, 8, BLOCKS, DRAWN)
    asking = asking._replace(choices=(replace(asking.choices[0], logprobs=0),))
    tokens = executor.execute(StepPlan((silent, asking))).tokens
    assert tokens[0].logprobs is None
    assert tokens[1].logprobs is not None
    assert tokens[1].logprobs.top_ids == ()


def test_a_step_may_be_repeated(executor: Executor) -> None:
    parts = _parts("a", TOKENS, 4, BLOCKS, DRAWN)
    first = _answer(executor, parts)
    assert _answer(executor, parts[1:]) == first
    assert _answer(executor, parts) == first


def test_another_sequence_in_the_same_blocks_leaves_no_trace(executor: Executor) -> None:
    first = _answer(executor, _parts("a", TOKENS, 8, BLOCKS, DRAWN))
    _answer(executor, _parts("b", [9] * 10, 10, BLOCKS, DRAWN))
    assert _answer(executor, _parts("a", TOKENS, 8, BLOCKS, DRAWN)) == first


def test_an_abort_between_steps_costs_at_most_the_next_step(executor: Executor) -> None:
    parts = _parts("a", TOKENS, 8, BLOCKS, GREEDY)
    expected = _answer(executor, parts)
    executor.abort()
    try:
        assert _answer(executor, parts) == expected
    except StepAborted:
        assert _answer(executor, parts) == expected


def test_a_plan_runtime_executor_shows_its_plan(executor: Executor) -> None:
    has_plan = executor.resolved_plan is not None
    assert has_plan == (executor.resource_authority is ResourceAuthority.PLAN_RUNTIME)


def test_close_may_be_repeated(executor: Executor) -> None:
    executor.close()
    executor.close()
