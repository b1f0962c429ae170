from __future__ import annotations

import numpy as np
import pytest

from ferrum.core.arrays import FloatArray
from ferrum.core.errors import InvalidConfig, ModelError
from ferrum.core.step import SampledToken, SamplingInstruction, SequencePart, StepPlan
from ferrum.execution.executor import ResolvedModelPlan
from ferrum.execution.plan_executor import PlanExecutor
from ferrum.runtimes.protocol import LogitsDetail, StepBatch, StepOutput
from ferrum.sampling.reference_sampler import Choice

GREEDY = SamplingInstruction(0.0, 0, 1.0, 0.0, seed=0, position=2)


class _RuntimeOfLogits:
    """Answers every row with the next of ``rows``; chooses greedily."""

    numerics_id = "rows"
    num_blocks, block_tokens, context_length, vocabulary_size = 4, 32, 128, 3

    def __init__(self, *rows: list[float], keeps_same_tokens_law: bool = True) -> None:
        self._rows = [np.array(row, dtype=np.float32) for row in rows]
        self._num_answers = 0
        self.keeps_same_tokens_law = keeps_same_tokens_law
        self.num_closes = 0
        self.num_aborts = 0

    def run(self, batch: StepBatch, detail: LogitsDetail = LogitsDetail.NONE) -> StepOutput:
        assert (batch.positions < min(self.context_length, self.block_tokens * self.num_blocks)).all()
        assert (batch.token_ids < self.vocabulary_size).all()
        logits = np.array([self._next() for _ in batch.output_rows], dtype=np.float32).reshape(-1, 3)
        has_sampling = batch.sampling is not None
        return StepOutput(
            token_ids=logits.argmax(axis=1).astype(np.int32) if has_sampling else np.empty(0, np.int32),
            logit_digests=np.full(len(logits) if detail else 0, 99, dtype=np.uint64),
            logits=logits if detail is LogitsDetail.FULL else np.empty((0, 3), np.float32),
        )

    def abort(self) -> None:
        self.num_aborts += 1

    def close(self) -> None:
        self.num_closes += 1

    def _next(self) -> FloatArray:
        self._num_answers += 1
        return self._rows[(self._num_answers - 1) % len(self._rows)]


def _executor(runtime: _RuntimeOfLogits, detail: LogitsDetail = LogitsDetail.NONE) -> PlanExecutor:
    return PlanExecutor(runtime, ResolvedModelPlan("test", 64), detail)


PLAN = StepPlan(
    (
        SequencePart("a", (1, 2), 0, (0,), (GREEDY,)),
        SequencePart("silent", (1,), 0, (1,), ()),
        SequencePart("b", (1,), 4, (2,), (GREEDY,)),
    )
)


def test_tokens_carry_the_id_of_the_part_that_asked() -> None:
    executor = _executor(_RuntimeOfLogits([0, 5, 0], [9, 5, 0]))
    assert executor.execute(PLAN).tokens == (SampledToken("a", 1), SampledToken("b", 0))


def test_digests_come_with_the_tokens_when_they_are_on() -> None:
    executor = _executor(_RuntimeOfLogits([0, 5, 0]), LogitsDetail.DIGEST)
    assert [token.logit_digest for token in executor.execute(PLAN).tokens] == [99, 99]


def test_a_step_without_sampling_answers_nothing() -> None:
    executor = _executor(_RuntimeOfLogits([0, 5, 0]), LogitsDetail.DIGEST)
    assert executor.execute(StepPlan(PLAN.parts[1:2])).tokens == ()


def test_capacity_is_what_the_runtime_has() -> None:
    capacity = _executor(_RuntimeOfLogits([0, 0, 0])).capacity
    assert (capacity.num_blocks, capacity.block_tokens, capacity.context_length) == (4, 32, 128)
    assert capacity.vocabulary_size == 3


def test_the_self_test_passes_on_repeatable_finite_logits() -> None:
    _executor(_RuntimeOfLogits([1, 2, 3])).prepare_startup()


@pytest.mark.parametrize("limit", ["context_length", "block_tokens", "vocabulary_size"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_self_test_fits_the_smallest_runtime(limit: str, size: int) -> None:
    runtime = _RuntimeOfLogits([1, 2, 3])
    setattr(runtime, limit, size)
    _executor(runtime).prepare_startup()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_the_self_test_refuses_logits_that_are_not_finite(bad: float) -> None:
    with pytest.raises(ModelError, match="not finite"):
        _executor(_RuntimeOfLogits([1, bad, 3])).prepare_startup()


def test_the_self_test_refuses_a_runtime_that_breaks_its_promise_to_repeat() -> None:
    with pytest.raises(ModelError, match="different logits"):
        _executor(_RuntimeOfLogits(*[[1, 2, 3]] * 4, [1, 2, 3.0000002])).prepare_startup()


def test_a_runtime_that_promises_no_repetition_need_not_repeat() -> None:
    runtime = _RuntimeOfLogits(*[[1, 2, 3]] * 4, [1, 2, 3.0000002], keeps_same_tokens_law=False)
    _executor(runtime).prepare_startup()


def test_a_sampler_of_ones_own_chooses_from_the_logits() -> None:
    class Least:
        def choose(self, logits: FloatArray, sampling: SamplingInstruction) -> Choice:
            return Choice(int(logits.argmin()), 0.0)

    runtime = _RuntimeOfLogits([0, 5, 1], [9, 5, 0])
    executor = PlanExecutor(runtime, ResolvedModelPlan("test", 64), sampler=Least())
    assert executor.execute(PLAN).tokens == (SampledToken("a", 0), SampledToken("b", 2))
    assert executor.execute(StepPlan(PLAN.parts[1:2])).tokens == ()
    with pytest.raises(InvalidConfig, match="logit_digests"):
        PlanExecutor(runtime, ResolvedModelPlan("test", 64), LogitsDetail.DIGEST, Least())


def test_close_is_idempotent_and_abort_is_passed_on() -> None:
    runtime = _RuntimeOfLogits([1, 2, 3])
    executor = _executor(runtime)
    executor.abort()
    executor.close()
    executor.close()
    assert (runtime.num_aborts, runtime.num_closes) == (1, 1)
