"""The flat arrays of a step of decodes, filled anew for each step in the same memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from struct import Struct

import numpy as np

from ferrum.core.arrays import Int32Array
from ferrum.core.step import SequencePart
from ferrum.execution.sampling_columns import with_rules_and_masks
from ferrum.runtimes.protocol import SamplingBatch, StepBatch

# What a choice is made of, in the order of the columns; seeds first, which want addresses that 8 divides.
_COLUMNS = attrgetter("seed", "temperature", "top_p", "min_p", "top_k", "position")


class DecodeArrays:
    """For ``num_rows`` sequences that each compute one token and choose the next.

    Most steps are such, and the compute threads wait while their arrays are made: all that changes is written
    by one call, and hardly anything is allocated. So a batch holds until the next one is asked for.
    """

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self._layout = Struct(f"={num_rows}Q{3 * num_rows}f{4 * num_rows}i")
        self._memory = bytearray(self._layout.size)
        seeds = np.frombuffer(self._memory, np.uint64, num_rows)
        reals = np.frombuffer(self._memory, np.float32, 3 * num_rows, seeds.nbytes)
        counts = np.frombuffer(self._memory, np.int32, 4 * num_rows, seeds.nbytes + reals.nbytes)
        temperature, top_p, min_p = reals.reshape(3, num_rows)
        top_k, position, self._token_ids, self._positions = counts.reshape(4, num_rows)
        self._starts = np.arange(num_rows + 1, dtype=np.int32)
        self._plain = SamplingBatch(temperature, top_k, top_p, min_p, seeds, position)
        self._batch: StepBatch | None = None

    def batch(self, parts: Sequence[SequencePart], block_tables: Int32Array) -> StepBatch:
        """The step of ``parts``, each with one token and one choice that asks for no log-probabilities."""
        choices = [part.choices[0] for part in parts]
        self._layout.pack_into(
            self._memory,
            0,
            *chain.from_iterable(zip(*map(_COLUMNS, choices), strict=True)),
            *[part.token_ids[0] for part in parts],
            *[part.start_position for part in parts],
        )
        if [choice for choice in choices if choice.rules is not None or choice.mask is not None]:
            return self._batch_with(with_rules_and_masks(self._plain, choices), block_tables)
        # The matrix of tables stays the same object until it grows.
        if self._batch is None or self._batch.block_tables is not block_tables:
            self._batch = self._batch_with(self._plain, block_tables)
        return self._batch

    def _batch_with(self, sampling: SamplingBatch, block_tables: Int32Array) -> StepBatch:
        return StepBatch(
            self._token_ids, self._positions, self._starts, block_tables, self._starts[:-1], sampling
        )
