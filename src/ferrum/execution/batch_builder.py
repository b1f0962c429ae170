"""From a StepPlan to the flat arrays a runtime reads. Works on whole parts, never on single tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain

import numpy as np

from ferrum.core.arrays import Int32Array
from ferrum.core.step import SamplingInstruction, SequencePart, StepPlan
from ferrum.runtimes.protocol import SamplingBatch, StepBatch


def build_batch(plan: StepPlan) -> StepBatch:
    """The plan's parts in order, rows of one part together."""
    parts = plan.parts
    lengths = [len(part.token_ids) for part in parts]
    ends = list(accumulate(lengths))
    sampled = [index for index, part in enumerate(parts) if part.sampling is not None]
    instructions = [part.sampling for part in parts if part.sampling is not None]
    return StepBatch(
        token_ids=_token_ids(parts, ends[-1]),
        positions=_positions(parts, lengths, ends),
        sequence_starts=np.array([0, *ends], dtype=np.int32),
        block_tables=_block_tables(parts),
        output_rows=np.array([ends[index] - 1 for index in sampled], dtype=np.int32),
        sampling=build_sampling_batch(instructions) if instructions else None,
    )


def build_sampling_batch(instructions: Sequence[SamplingInstruction]) -> SamplingBatch:
    """Instructions as columns."""
    return SamplingBatch(
        temperature=np.array([each.temperature for each in instructions], dtype=np.float32),
        top_k=np.array([each.top_k for each in instructions], dtype=np.int32),
        top_p=np.array([each.top_p for each in instructions], dtype=np.float32),
        min_p=np.array([each.min_p for each in instructions], dtype=np.float32),
        seed=np.array([each.seed for each in instructions], dtype=np.uint64),
        position=np.array([each.position for each in instructions], dtype=np.int32),
    )


def _token_ids(parts: Sequence[SequencePart], num_tokens: int) -> Int32Array:
    flat = chain.from_iterable(part.token_ids for part in parts)
    return np.fromiter(flat, dtype=np.int32, count=num_tokens)


def _positions(parts: Sequence[SequencePart], lengths: Sequence[int], ends: Sequence[int]) -> Int32Array:
    """Each part counts on from its own start: row number plus the distance between the two."""
    distances = [
        part.start_position - (end - length) for part, length, end in zip(parts, lengths, ends, strict=True)
    ]
    rows = np.arange(ends[-1], dtype=np.int32)
    return rows + np.repeat(np.array(distances, dtype=np.int32), lengths)


def _block_tables(parts: Sequence[SequencePart]) -> Int32Array:
    tables = np.zeros((len(parts), max(len(part.block_table) for part in parts)), dtype=np.int32)
    for table, part in zip(tables, parts, strict=True):
        table[: len(part.block_table)] = part.block_table
    return tables
