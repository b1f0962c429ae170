"""From a StepPlan to the flat arrays a runtime reads. Works on whole parts, never on single tokens.

It runs between two steps, while the compute threads wait: numpy is called as seldom as can be.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain

import numpy as np

from ferrum.core.arrays import Int32Array
from ferrum.core.step import SamplingInstruction, SequencePart, StepPlan
from ferrum.execution.block_table_rows import BlockTableRows
from ferrum.execution.decode_arrays import DecodeArrays
from ferrum.execution.logprob_batches import LogprobBatches, num_entries_of
from ferrum.execution.sampling_columns import SamplingColumns
from ferrum.runtimes.protocol import LogprobBatch, SamplingBatch, StepBatch

# Stands in the columns where a token is known already.
_NOTHING_TO_CHOOSE = SamplingInstruction(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0, position=0)


class BatchBuilder:
    """Builds one StepBatch after the other. Mutated by ``build``, on the thread that runs the steps.

    A batch shares its memory with the next one, so it holds until ``build`` is called again.
    """

    def __init__(self) -> None:
        self._tables = BlockTableRows()
        self._decodes = DecodeArrays(1)
        self._sampling = SamplingColumns(1)
        self._logprobs = LogprobBatches()

    def build(self, plan: StepPlan) -> StepBatch:
        """The plan's parts in order, rows of one part together."""
        batch = self._batch_of(plan.parts)
        if plan.num_lent_processors:
            return replace(batch, num_lent_processors=plan.num_lent_processors)
        return batch

    def _batch_of(self, parts: Sequence[SequencePart]) -> StepBatch:
        block_tables = self._tables.rows_of(parts)
        if all(map(_is_plain_decode, parts)):
            if self._decodes.num_rows != len(parts):
                self._decodes = DecodeArrays(len(parts))
            logprobs = self._logprobs.of_choices([part.choices[0] for part in parts])
            return self._decodes.batch(parts, block_tables, logprobs)
        return self._build_mixed(parts, block_tables)

    def _build_mixed(self, parts: Sequence[SequencePart], block_tables: Int32Array) -> StepBatch:
        lengths = [len(part.token_ids) for part in parts]
        ends = list(accumulate(lengths))
        if any(part.scored for part in parts):
            output_rows, instructions, known = _outputs_with_known_tokens(parts, lengths, ends)
            logprobs: LogprobBatch | None = self._logprobs.of_rows(*known)
        else:
            output_rows, instructions = _outputs(parts, ends)
            logprobs = self._logprobs.of_choices(instructions)
        token_ids, positions = _rows(parts)
        # One array and views of it: each call of numpy costs as much as a hundred of these numbers.
        numbers = np.frombuffer(array("i", [*token_ids, *positions, 0, *ends, *output_rows]), np.int32)
        num_rows, starts_end = ends[-1], 2 * ends[-1] + len(parts) + 1
        return StepBatch(
            token_ids=numbers[:num_rows],
            positions=numbers[num_rows : 2 * num_rows],
            sequence_starts=numbers[2 * num_rows : starts_end],
            block_tables=block_tables,
            output_rows=numbers[starts_end:],
            sampling=self._sampling_of(instructions) if instructions else None,
            logprobs=logprobs,
        )

    def _sampling_of(self, instructions: Sequence[SamplingInstruction]) -> SamplingBatch:
        if self._sampling.num_rows != len(instructions):
            self._sampling = SamplingColumns(len(instructions))
        return self._sampling.batch(instructions)


def _is_plain_decode(part: SequencePart) -> bool:
    """One token, one choice, and nothing of a prompt to be known beside it."""
    return len(part.token_ids) == len(part.choices) == 1 and part.scored is None


def _outputs(
    parts: Sequence[SequencePart], ends: Sequence[int]
) -> tuple[list[int], list[SamplingInstruction]]:
    """The rows whose logits are needed, in order; how to choose after each."""
    rows: list[int] = []
    for end, part in zip(ends, parts, strict=True):
        rows += range(end - len(part.choices), end)
    return rows, [choice for part in parts for choice in part.choices]


def _outputs_with_known_tokens(
    parts: Sequence[SequencePart], lengths: Sequence[int], ends: Sequence[int]
) -> tuple[list[int], list[SamplingInstruction], tuple[list[int], list[int]]]:
    """Rows and choices as ``_outputs``; beside them the columns of a LogprobBatch."""
    rows: list[int] = []
    instructions: list[SamplingInstruction] = []
    num_entries: list[int] = []
    known_tokens: list[int] = []
    for part, length, end in zip(parts, lengths, ends, strict=True):
        if part.scored is not None:
            ids = part.scored.token_ids
            rows += range(end - length, end - length + len(ids))
            instructions += [_NOTHING_TO_CHOOSE] * len(ids)
            num_entries += [part.scored.num_top + 1] * len(ids)
            known_tokens += ids
        rows += range(end - len(part.choices), end)
        instructions += part.choices
        num_entries += map(num_entries_of, part.choices)
        known_tokens += [-1] * len(part.choices)
    return rows, instructions, (num_entries, known_tokens)


def _rows(parts: Sequence[SequencePart]) -> tuple[Iterator[int], Iterator[int]]:
    """Token ids and positions; each part counts on from its own start."""
    positions = [range(part.start_position, part.start_position + len(part.token_ids)) for part in parts]
    return chain.from_iterable([part.token_ids for part in parts]), chain.from_iterable(positions)
