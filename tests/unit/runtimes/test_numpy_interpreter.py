"""The interpreter as a runtime: paging, chunks, mixed steps, and its two arithmetics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ferrum.core.arrays import FloatArray, Int32Array
from ferrum.core.errors import InternalError
from ferrum.models.architectures import build_plan
from ferrum.plan.operations import Embed
from ferrum.runtimes.exact_operations import logit_digest
from ferrum.runtimes.numpy_interpreter import InterpreterMode, NumpyInterpreter
from ferrum.runtimes.protocol import ChosenTokens, LogitsDetail, SamplingBatch, StepAborted, StepBatch
from ferrum.weights.checkpoint import open_checkpoint
from ferrum.weights.tensor_types import TensorType
from tiny_models import (
    CONTEXT,
    VOCABULARY,
    gemma3_metadata,
    llama_metadata,
    write_tiny_gemma3,
    write_tiny_llama,
)

EXACT, FLOAT = InterpreterMode.QUANTISED_EXACT, InterpreterMode.FLOAT
# K types have rows of whole 256-value blocks.
WIDE: Mapping[str, Any] = {"embedding_length": 256, "feed_forward_length": 256, "block_count": 1}


def interpreter_of(path: Path, mode: InterpreterMode, num_blocks: int = 16, **more: Any) -> NumpyInterpreter:
    checkpoint = open_checkpoint(path)
    return NumpyInterpreter(build_plan(checkpoint), checkpoint.tensors, num_blocks, mode, **more)


def step(*parts: tuple[list[int], int, list[int]], sampling: SamplingBatch | None = None) -> StepBatch:
    """Parts are (token ids, first position, block table); logits are wanted of every row."""
    longest = max(len(table) for _, _, table in parts)
    positions = [np.arange(start, start + len(ids)) for ids, start, _ in parts]
    starts = np.cumsum([0, *(len(ids) for ids, _, _ in parts)])
    return StepBatch(
        token_ids=np.concatenate([np.array(ids) for ids, _, _ in parts]).astype(np.int32),
        positions=np.concatenate(positions).astype(np.int32),
        sequence_starts=starts.astype(np.int32),
        block_tables=np.array([table + [0] * (longest - len(table)) for _, _, table in parts], np.int32),
        output_rows=np.arange(starts[-1], dtype=np.int32),
        sampling=sampling,
    )


def some_ids(num_tokens: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, num_tokens).tolist()


def logits_of(interpreter: NumpyInterpreter, batch: StepBatch) -> FloatArray:
    return interpreter.run(batch, LogitsDetail.FULL).logits


def in_chunks(
    interpreter: NumpyInterpreter, ids: list[int], table: list[int], sizes: list[int]
) -> FloatArray:
    rows, start = [], 0
    while start < len(ids):
        for size in sizes:
            part = ids[start : start + size]
            if part:
                rows.append(logits_of(interpreter, step((part, start, table))))
            start += len(part)
    return np.concatenate(rows)


@pytest.fixture(params=["llama", "gemma3"])
def tiny_path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "llama":
        metadata = llama_metadata(attention__sliding_window=45)
        return write_tiny_llama(tmp_path / "m.gguf", TensorType.Q4_1, metadata=metadata, has_biases=True)
    metadata = gemma3_metadata(block_count=6, attention__sliding_window=33)
    return write_tiny_gemma3(tmp_path / "m.gguf", TensorType.Q8_0, metadata=metadata)


def test_exact_bits_do_not_depend_on_chunks_or_on_where_the_blocks_lie(tiny_path: Path) -> None:
    ids = some_ids(150)
    whole = logits_of(interpreter_of(tiny_path, EXACT), step((ids, 0, [0, 1, 2, 3, 4])))
    for sizes, table in (([64], [4, 2, 0, 3, 1]), ([7, 1, 33], [9, 8, 7, 6, 5])):
        assert in_chunks(interpreter_of(tiny_path, EXACT), ids, table, sizes).tobytes() == whole.tobytes()


def test_exact_bits_do_not_depend_on_neighbours_in_the_step(tiny_path: Path) -> None:
    first, second = some_ids(50), some_ids(40, seed=1)
    alone = logits_of(interpreter_of(tiny_path, EXACT), step((first, 0, [0, 1])))
    interpreter = interpreter_of(tiny_path, EXACT)
    logits_of(interpreter, step((second[:30], 0, [5, 7])))
    mixed = logits_of(interpreter, step((second[30:], 30, [5, 7]), (first, 0, [2, 9])))
    assert mixed[10:].tobytes() == alone.tobytes()
    second_alone = logits_of(interpreter_of(tiny_path, EXACT), step((second, 0, [0, 1])))
    assert mixed[:10].tobytes() == second_alone[30:].tobytes()


def test_float_logits_do_not_depend_on_chunks_beyond_rounding(tiny_path: Path) -> None:
    ids = some_ids(150)
    whole = logits_of(interpreter_of(tiny_path, FLOAT), step((ids, 0, [0, 1, 2, 3, 4])))
    chunked = in_chunks(interpreter_of(tiny_path, FLOAT), ids, [4, 2, 0, 3, 1], [64, 1, 30])
    np.testing.assert_allclose(chunked, whole, atol=1e-3 * whole.std())


@pytest.mark.parametrize("kind", list(TensorType))
def test_both_arithmetics_agree_for_every_stored_type(tmp_path: Path, kind: TensorType) -> None:
    metadata = llama_metadata(**WIDE)
    path = write_tiny_llama(tmp_path / "m.gguf", kind, metadata=metadata)
    batch = step((some_ids(6), 0, [0]))
    exact = logits_of(interpreter_of(path, EXACT), batch)
    reference = logits_of(interpreter_of(path, FLOAT), batch)
    # An activation in 8 bits errs by 3 / 127 / sqrt(12) = 0.7 % of the deviation when the largest of 32 is
    # three deviations; five linears in a row make 1.5 %. Floats differ in K and V (2^-11) and in order.
    tolerance = 0.03 if kind.is_quantized else 1e-3
    assert np.sqrt(np.square(exact - reference).mean()) <= tolerance * reference.std()
    assert not np.array_equal(exact, reference)


def test_only_the_wanted_rows_get_logits(tiny_path: Path) -> None:
    ids = some_ids(20)
    everything = step((ids, 0, [0]))
    whole = logits_of(interpreter_of(tiny_path, EXACT), everything)
    wanted = np.array([3, 19], np.int32)
    batch = StepBatch(
        everything.token_ids,
        everything.positions,
        everything.sequence_starts,
        everything.block_tables,
        wanted,
        None,
    )
    assert logits_of(interpreter_of(tiny_path, EXACT), batch).tobytes() == whole[wanted].tobytes()


def test_a_step_that_wants_no_logits_still_fills_the_cache(tiny_path: Path) -> None:
    ids = some_ids(40)
    interpreter = interpreter_of(tiny_path, EXACT)
    first = step((ids[:35], 0, [0, 1]))
    quiet = StepBatch(
        first.token_ids,
        first.positions,
        first.sequence_starts,
        first.block_tables,
        np.zeros(0, np.int32),
        None,
    )
    output = interpreter.run(quiet, LogitsDetail.FULL)
    assert output.logits.shape == (0, VOCABULARY)
    assert len(output.token_ids) == 0
    rest = logits_of(interpreter, step((ids[35:], 35, [0, 1])))
    whole = logits_of(interpreter_of(tiny_path, EXACT), step((ids, 0, [0, 1])))
    assert rest.tobytes() == whole[35:].tobytes()


def test_details_report_what_was_asked_for(tiny_path: Path) -> None:
    interpreter = interpreter_of(tiny_path, EXACT)
    batch = step((some_ids(3), 0, [0]))
    logits = logits_of(interpreter, batch)
    digests = interpreter.run(batch, LogitsDetail.DIGEST)
    assert digests.logit_digests.tolist() == logit_digest(logits).tolist()
    assert digests.logits.shape == (0, VOCABULARY)
    nothing = interpreter.run(batch)
    assert (len(nothing.logit_digests), len(nothing.logits), len(nothing.token_ids)) == (0, 0, 0)


def some_sampling(num_outputs: int) -> SamplingBatch:
    zeros = np.zeros(num_outputs)
    return SamplingBatch(
        temperature=zeros.astype(np.float32),
        top_k=zeros.astype(np.int32),
        top_p=np.ones(num_outputs, np.float32),
        min_p=zeros.astype(np.float32),
        seed=zeros.astype(np.uint64),
        position=zeros.astype(np.int32),
    )


def test_tokens_are_chosen_by_the_sampler_it_was_given(tiny_path: Path) -> None:
    def choose(logits: FloatArray, sampling: SamplingBatch) -> ChosenTokens:
        assert len(sampling.temperature) == len(logits)
        return ChosenTokens(logits.argmax(axis=-1).astype(np.int32), np.zeros(len(logits)))

    batch = step((some_ids(3), 0, [0]), sampling=some_sampling(3))
    output = interpreter_of(tiny_path, EXACT, choose=choose).run(batch, LogitsDetail.FULL)
    assert output.token_ids.tolist() == output.logits.argmax(axis=-1).tolist()
    with pytest.raises(InternalError, match="without a sampler"):
        interpreter_of(tiny_path, EXACT).run(batch)


def test_an_aborted_step_stops_between_operations_and_the_next_one_runs(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter = interpreter_of(tiny_path, FLOAT)
    batch = step((some_ids(3), 0, [0]))
    expected = logits_of(interpreter, batch)
    arithmetic = interpreter._arithmetic
    embed = arithmetic.embed

    def embed_and_abort(operation: Embed, token_ids: Int32Array) -> FloatArray:
        interpreter.abort()
        return embed(operation, token_ids)

    with monkeypatch.context() as patch:
        patch.setattr(arithmetic, "embed", embed_and_abort)
        with pytest.raises(StepAborted):
            interpreter.run(batch)
    assert logits_of(interpreter, batch).tobytes() == expected.tobytes()


def test_it_says_what_it_is(tiny_path: Path) -> None:
    exact, reference = interpreter_of(tiny_path, EXACT), interpreter_of(tiny_path, FLOAT)
    assert exact.keeps_same_tokens_law
    assert not reference.keeps_same_tokens_law
    assert exact.numerics_id != reference.numerics_id
    assert (exact.num_blocks, exact.block_tokens) == (16, 32)
    assert (exact.context_length, exact.vocabulary_size) == (CONTEXT, VOCABULARY)
    exact.close()
    exact.close()
