from __future__ import annotations

from dataclasses import fields

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ferrum.core.step import SamplingInstruction, SequencePart, StepPlan
from ferrum.core.token_rules import RuleSettings, TokenRules
from ferrum.execution.batch_builder import BatchBuilder
from ferrum.execution.sampling_columns import build_sampling_batch
from ferrum.runtimes.protocol import SamplingBatch

INSTRUCTION = SamplingInstruction(0.5, 3, 0.9, 0.1, seed=2**64 - 1, position=7)


def test_a_mixed_step_becomes_flat_arrays() -> None:
    batch = BatchBuilder().build(
        StepPlan(
            (
                SequencePart("decode", (11,), 6, (4, 2), (INSTRUCTION,)),
                SequencePart("middle", (21, 22, 23), 3, (0, 1, 5), ()),
                SequencePart("last", (31, 32), 0, (7,), (INSTRUCTION,)),
            )
        )
    )
    assert batch.token_ids.tolist() == [11, 21, 22, 23, 31, 32]
    assert batch.positions.tolist() == [6, 3, 4, 5, 0, 1]
    assert batch.sequence_starts.tolist() == [0, 1, 4, 6]
    assert batch.block_tables.tolist() == [[4, 2, 0], [0, 1, 5], [7, 0, 0]]
    assert batch.output_rows.tolist() == [0, 5]
    assert batch.sampling is not None
    assert batch.sampling.seed.tolist() == [2**64 - 1] * 2


def test_a_step_that_chooses_nothing_has_no_sampling() -> None:
    batch = BatchBuilder().build(StepPlan((SequencePart("a", (1, 2), 0, (0,), ()),)))
    assert batch.sampling is None
    assert batch.output_rows.tolist() == []


def test_every_array_has_the_type_the_runtime_reads() -> None:
    batch = BatchBuilder().build(StepPlan((SequencePart("a", (1,), 0, (0,), (INSTRUCTION,)),)))
    arrays = (batch.token_ids, batch.positions, batch.sequence_starts, batch.block_tables, batch.output_rows)
    assert {array.dtype for array in arrays} == {np.dtype(np.int32)}
    assert all(array.flags.c_contiguous for array in arrays)
    columns = build_sampling_batch([INSTRUCTION])
    assert (columns.temperature.dtype, columns.top_p.dtype, columns.min_p.dtype) == (np.float32,) * 3
    assert (columns.top_k.dtype, columns.position.dtype, columns.seed.dtype) == (
        np.int32,
        np.int32,
        np.uint64,
    )


instructions = st.builds(
    SamplingInstruction,
    temperature=st.floats(0.0, 100.0),
    top_k=st.integers(0, 2**31 - 1),
    top_p=st.floats(0.0, 1.0),
    min_p=st.floats(0.0, 1.0),
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(0, 2**31 - 1),
    rules=st.sampled_from([None, TokenRules(RuleSettings())]),
    mask=st.sampled_from([None, np.ones(2, np.uint32)]),
    logprobs=st.sampled_from([None, None, 0, 3]),
)
decodes = st.lists(
    st.tuples(instructions, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 2)), min_size=1, max_size=5
)


@given(st.lists(decodes, min_size=1, max_size=5))
def test_a_step_of_decodes_reads_like_the_same_decodes_beside_a_prompt(
    steps: list[list[tuple[SamplingInstruction, int, int]]],
) -> None:
    """Steps of decodes alone are written another way, over the memory of the last one."""
    prompt = SequencePart("prompt", (1, 2), 0, (3,), ())
    alone, beside = BatchBuilder(), BatchBuilder()
    for step in steps:
        parts = tuple(
            SequencePart(str(row), (token_id,), start, (row,), (choice,))
            for row, (choice, token_id, start) in enumerate(step)
        )
        batch, mixed = alone.build(StepPlan(parts)), beside.build(StepPlan((*parts, prompt)))
        num_rows = len(parts)
        for name in ("token_ids", "positions", "output_rows", "block_tables"):
            written, expected = getattr(batch, name), getattr(mixed, name)[:num_rows]
            assert written.dtype == expected.dtype, name
            assert written.tobytes() == expected.tobytes(), name
        assert batch.sequence_starts.tolist() == mixed.sequence_starts.tolist()[: num_rows + 1]
        entries = [0 if choice.logprobs is None else choice.logprobs + 1 for choice, *_ in step]
        for built in (batch, mixed):
            assert (built.logprobs is not None) == any(entries)
            if built.logprobs is not None:
                assert built.logprobs.num_entries.tolist() == entries
                assert built.logprobs.known_tokens.tolist() == [-1] * num_rows
        assert batch.sampling is not None
        assert mixed.sampling is not None
        for field in fields(SamplingBatch):
            written, expected = getattr(batch.sampling, field.name), getattr(mixed.sampling, field.name)
            if isinstance(expected, np.ndarray):
                assert written.dtype == expected.dtype, field.name
                assert written.flags.c_contiguous, field.name
                assert written.tobytes() == expected.tobytes(), field.name
            else:
                assert written == expected, field.name


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 40)), min_size=1, max_size=20))
def test_rows_of_a_part_are_at_its_own_consecutive_positions(shapes: list[tuple[int, int]]) -> None:
    parts = tuple(
        SequencePart(str(index), tuple(range(length)), start, (0,) * 5, ())
        for index, (start, length) in enumerate(shapes)
    )
    batch = BatchBuilder().build(StepPlan(parts))
    for index, part in enumerate(parts):
        rows = slice(batch.sequence_starts[index], batch.sequence_starts[index + 1])
        end = part.start_position + len(part.token_ids)
        assert batch.positions[rows].tolist() == list(range(part.start_position, end))
        assert batch.token_ids[rows].tolist() == list(part.token_ids)


tables = st.lists(st.integers(0, 99), min_size=1, max_size=9).map(tuple)
steps = st.lists(st.lists(tables, min_size=1, max_size=6), min_size=1, max_size=6)


@given(steps)
def test_block_tables_hold_nothing_of_the_steps_before(steps: list[list[tuple[int, ...]]]) -> None:
    builder = BatchBuilder()
    for step in steps:
        parts = tuple(SequencePart(str(row), (1,), 0, table, ()) for row, table in enumerate(step))
        rows = builder.build(StepPlan(parts)).block_tables
        assert rows.flags.c_contiguous
        assert rows.shape[0] == len(step)
        for row, table in zip(rows.tolist(), step, strict=True):
            assert row == [*table, *(0 for _ in row[len(table) :])]


def test_a_table_that_grew_or_moved_is_written_again() -> None:
    builder = BatchBuilder()
    short, long = (1,), (1, 2)

    def rows(*tables: tuple[int, ...]) -> list[list[int]]:
        parts = tuple(SequencePart(str(row), (1,), 0, table, ()) for row, table in enumerate(tables))
        return builder.build(StepPlan(parts)).block_tables.tolist()

    assert rows(short, (9, 8)) == [[1, 0], [9, 8]]
    assert rows(long, (9, 8)) == [[1, 2], [9, 8]]
    assert rows((9, 8)) == [[9, 8]]
    assert rows(short, long) == [[1, 0], [1, 2]]


def test_a_decode_whose_table_outgrew_all_before_reads_its_own_blocks() -> None:
    builder = BatchBuilder()
    for table in ((4,), (4, 2), (4, 2, 9), (4, 2, 9, 8, 7)):
        batch = builder.build(StepPlan((SequencePart("a", (1,), 0, table, (INSTRUCTION,)),)))
        [row] = batch.block_tables.tolist()
        assert row == [*table, *(0 for _ in row[len(table) :])]


def test_lent_processors_are_those_of_the_plan_and_of_no_later_step() -> None:
    builder = BatchBuilder()
    part = SequencePart("a", (1,), 0, (4,), (INSTRUCTION,))
    lent = [builder.build(StepPlan((part,), num_lent_processors=n)).num_lent_processors for n in (0, 1, 0)]
    assert lent == [0, 1, 0]
