from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from ferrum.core.arrays import FloatArray
from ferrum.core.errors import InternalError, ModelError
from ferrum.core.step import SamplingInstruction, SequencePart, StepPlan
from ferrum.execution.executor import ExecutorCapacity
from ferrum.execution.transformers_executor import TransformersExecutor
from ferrum.runtimes.causal_model import CacheObject
from ferrum.runtimes.protocol import StepAborted
from ferrum.sampling.sampler import GreedySampler
from ferrum.testing.scripted_causal_model import ScriptedCausalModel

CAPACITY = ExecutorCapacity(num_blocks=8, block_tokens=4, context_length=32, vocabulary_size=258)


def _part(
    tokens: Iterable[int], start: int = 0, handle: int = 0, *, temperature: float = 0.0, samples: bool = True
) -> SequencePart:
    ids = tuple(tokens)
    sampling = SamplingInstruction(temperature, 0, 1.0, 0.0, seed=5, position=start + len(ids))
    return SequencePart(f"r{handle}", ids, start, (handle,), (sampling,) if samples else ())


def _run(executor: TransformersExecutor, *parts: SequencePart) -> list[int]:
    return [token.token_id for token in executor.execute(StepPlan(parts)).tokens]


def _expected(tokens: Sequence[int]) -> int:
    model = ScriptedCausalModel()
    return int(np.argmax(model.forward(tokens, model.new_cache())))


def test_every_request_has_a_forward_pass_and_a_cache_of_its_own() -> None:
    model = ScriptedCausalModel()
    executor = TransformersExecutor(model, CAPACITY)
    assert _run(executor, _part([1, 2, 3]), _part([4, 5], handle=3)) == [
        _expected([1, 2, 3]),
        _expected([4, 5]),
    ]
    assert _run(executor, _part([6], 2, handle=3), _part([7], 3)) == [
        _expected([4, 5, 6]),
        _expected([1, 2, 3, 7]),
    ]
    assert model.forwards == [(1, 2, 3), (4, 5), (6,), (7,)]
    assert len(model.caches) == 2


def test_a_given_back_handle_drops_its_cache_object() -> None:
    model = ScriptedCausalModel()
    executor = TransformersExecutor(model, CAPACITY)
    _run(executor, _part([1, 2]), _part([3], handle=1))
    assert executor.block_keeper is not None
    assert not executor.block_keeper.keep(1)
    assert not executor.block_keeper.keep(5)
    assert len(model.caches) == 1
    executor.close()
    assert len(model.caches) == 0
    assert model.is_closed


def test_repeating_a_part_computes_nothing() -> None:
    model = ScriptedCausalModel()
    executor = TransformersExecutor(model, CAPACITY)
    _run(executor, _part([1, 2]))
    first = _run(executor, _part([3], 2, temperature=1.0))
    assert _run(executor, _part([3], 2, temperature=1.0)) == first
    assert model.forwards == [(1, 2), (3,)]


def test_going_back_rebuilds_what_was_before() -> None:
    model = ScriptedCausalModel()
    executor = TransformersExecutor(model, CAPACITY)
    _run(executor, _part([1, 2]), _part([3], 2, handle=0), _part([4], 3))
    assert _run(executor, _part([9], 2)) == [_expected([1, 2, 9])]
    assert len(model.caches) == 1


def test_a_failed_pass_leaves_no_half_written_state() -> None:
    def fail_once(token_ids: Sequence[int]) -> None:
        model.before_forward = None
        raise RuntimeError("out of luck")

    model = ScriptedCausalModel()
    executor = TransformersExecutor(model, CAPACITY)
    _run(executor, _part([1, 2]))
    model.before_forward = fail_once
    with pytest.raises(RuntimeError):
        _run(executor, _part([3, 4], 2))
    assert _run(executor, _part([3, 4], 2)) == [_expected([1, 2, 3, 4])]


def test_a_sequence_that_was_never_computed_cannot_go_on() -> None:
    executor = TransformersExecutor(ScriptedCausalModel(), CAPACITY)
    _run(executor, _part([1, 2]))
    for part in (_part([3], 1, handle=1), _part([3], 3)):
        with pytest.raises(InternalError, match="its cache object holds"):
            _run(executor, part)


def test_an_abort_ends_the_step_before_the_next_request() -> None:
    model = ScriptedCausalModel()
    executor = TransformersExecutor(model, CAPACITY)
    parts = (_part([1, 2]), _part([3, 4], handle=1))
    model.before_forward = lambda token_ids: executor.abort()
    with pytest.raises(StepAborted):
        _run(executor, *parts)
    assert model.forwards == [(1, 2)]
    model.before_forward = None
    assert _run(executor, *parts) == [_expected([1, 2]), _expected([3, 4])]
    assert model.forwards == [(1, 2), (3, 4)]


def test_an_architecture_that_takes_no_chunks_is_fed_single_tokens(caplog: pytest.LogCaptureFixture) -> None:
    model = ScriptedCausalModel(takes_chunks=False)
    executor = TransformersExecutor(model, CAPACITY)
    with caplog.at_level(logging.WARNING):
        executor.prepare_startup()
    assert "one token at a time" in caplog.text
    model.forwards.clear()
    _run(executor, _part([1, 2], samples=False))
    assert _run(executor, _part([3, 4, 5], 2)) == [_expected([1, 2, 3, 4, 5])]
    assert model.forwards == [(1, 2), (3,), (4,), (5,)]


def test_an_architecture_that_takes_chunks_gets_them() -> None:
    model = ScriptedCausalModel()
    executor = TransformersExecutor(model, CAPACITY)
    executor.prepare_startup()
    assert len(model.caches) == 0
    model.forwards.clear()
    _run(executor, _part([1, 2], samples=False), _part([3, 4], 2))
    assert model.forwards == [(1, 2), (3, 4)]


class _NotFinite(ScriptedCausalModel):
    def forward(self, token_ids: Sequence[int], cache: CacheObject) -> FloatArray:
        logits = super().forward(token_ids, cache)
        logits[3] = np.nan
        return logits


def test_logits_that_are_not_finite_never_serve() -> None:
    executor = TransformersExecutor(_NotFinite(), CAPACITY)
    with pytest.raises(ModelError, match="not finite"):
        executor.prepare_startup()
    with pytest.raises(InternalError, match="r0 are not finite"):
        _run(executor, _part([1]))


def test_a_sampler_replaces_the_usual_choice() -> None:
    executor = TransformersExecutor(ScriptedCausalModel(), CAPACITY, GreedySampler())
    assert _run(executor, _part([1, 2], temperature=5.0)) == [_expected([1, 2])]
