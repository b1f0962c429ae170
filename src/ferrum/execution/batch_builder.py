"""From a StepPlan to the flat arrays a runtime reads. Works on whole parts, never on single tokens.

It runs between two steps, while the compute threads wait: numpy is called as seldom as can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, chain

import numpy as np

from ferrum.core.arrays import Int32Array
from ferrum.core.step import SamplingInstruction, SequencePart, StepPlan
from ferrum.execution.block_table_rows import BlockTableRows
from ferrum.execution.decode_arrays import DecodeArrays
from ferrum.execution.sampling_columns import build_sampling_batch
from ferrum.runtimes.protocol import LogprobBatch, StepBatch

# Stands in the columns where a token is known already.
_NOTHING_TO_CHOOSE = SamplingInstruction(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0, position=0)


class BatchBuilder:
    """Builds one StepBatch after the other. Mutated by ``build``, on the thread that runs the steps.

    A batch shares its memory with the next one, so it holds until ``build`` is called again.
    """

    def __init__(self) -> None:
        self._tables = BlockTableRows()
        self._decodes = DecodeArrays(1)

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
            return self._decodes.batch(parts, block_tables)
        lengths = [len(part.token_ids) for part in parts]
        ends = list(accumulate(lengths))
        output_rows, instructions, logprobs = _outputs(parts, lengths, ends)
        token_ids, positions = _rows(parts, lengths, ends)
        return StepBatch(
            token_ids=token_ids,
            positions=positions,
            sequence_starts=np.array([0, *ends], dtype=np.int32),
            block_tables=block_tables,
            output_rows=np.array(output_rows, dtype=np.int32),
            sampling=build_sampling_batch(instructions) if instructions else None,
            logprobs=logprobs,
        )


def _is_plain_decode(part: SequencePart) -> bool:
    """One token, one choice, and nothing to be known beside it."""
    return (
        len(part.token_ids) == len(part.choices) == 1
        and part.scored is None
        and part.choices[0].logprobs is None
    )


def _outputs(
    parts: Sequence[SequencePart], lengths: Sequence[int], ends: Sequence[int]
) -> tuple[list[int], list[SamplingInstruction], LogprobBatch | None]:
    """The rows whose logits are needed, in order; how to choose after each; which want log-probabilities."""
    if any(part.scored for part in parts):
        return _outputs_with_known_tokens(parts, lengths, ends)
    rows = [row for end, part in zip(ends, parts, strict=True) for row in range(end - len(part.choices), end)]
    instructions = [choice for part in parts for choice in part.choices]
    if all(each.logprobs is None for each in instructions):
        return rows, instructions, None
    num_entries = [_num_entries(each) for each in instructions]
    return rows, instructions, _logprob_batch(num_entries, [-1] * len(rows))


def _outputs_with_known_tokens(
    parts: Sequence[SequencePart], lengths: Sequence[int], ends: Sequence[int]
) -> tuple[list[int], list[SamplingInstruction], LogprobBatch]:
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
        num_entries += map(_num_entries, part.choices)
        known_tokens += [-1] * len(part.choices)
    return rows, instructions, _logprob_batch(num_entries, known_tokens)


def _num_entries(choice: SamplingInstruction) -> int:
    return 0 if choice.logprobs is None else choice.logprobs + 1


def _logprob_batch(num_entries: Sequence[int], known_tokens: Sequence[int]) -> LogprobBatch:
    return LogprobBatch(np.array(num_entries, np.int32), np.array(known_tokens, np.int32))


def _rows(
    parts: Sequence[SequencePart], lengths: Sequence[int], ends: Sequence[int]
) -> tuple[Int32Array, Int32Array]:
    """Token ids [num_tokens] and positions [num_tokens]."""
    flat = chain.from_iterable(part.token_ids for part in parts)
    return np.fromiter(flat, dtype=np.int32, count=ends[-1]), _positions(parts, lengths, ends)


def _positions(parts: Sequence[SequencePart], lengths: Sequence[int], ends: Sequence[int]) -> Int32Array:
    """Each part counts on from its own start: row number plus the distance between the two."""
    distances = [
        part.start_position - (end - length) for part, length, end in zip(parts, lengths, ends, strict=True)
    ]
    rows = np.arange(ends[-1], dtype=np.int32)
    return rows + np.repeat(np.array(distances, dtype=np.int32), lengths)
