"""The flat arrays of a step of decodes, filled anew for each step in the same memory."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

import numpy as np

from ferrum.core.arrays import Int32Array
from ferrum.core.step import SequencePart
from ferrum.execution.sampling_columns import SamplingColumns
from ferrum.runtimes.protocol import LogprobBatch, StepBatch


class DecodeArrays:
    """For ``num_rows`` sequences that each compute one token and choose the next.

    Most steps are such, and the compute threads wait while their arrays are made: hardly anything is
    allocated. So a batch holds until the next one is asked for.
    """

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self._layout = Struct(f"={2 * num_rows}i")
        self._memory = bytearray(self._layout.size)
        rows = np.frombuffer(self._memory, np.int32)
        self._token_ids, self._positions = rows.reshape(2, num_rows)
        self._starts = np.arange(num_rows + 1, dtype=np.int32)
        self._output_rows = self._starts[:-1]
        self._sampling = SamplingColumns(num_rows)
        self._batch: StepBatch | None = None

    def batch(
        self, parts: Sequence[SequencePart], block_tables: Int32Array, logprobs: LogprobBatch | None
    ) -> StepBatch:
        """The step of ``parts``, each with one token and one choice, and nothing to be known beside it but
        ``logprobs``.
        """
        self._layout.pack_into(
            self._memory,
            0,
            *[part.token_ids[0] for part in parts],
            *[part.start_position for part in parts],
        )
        sampling = self._sampling.batch([part.choices[0] for part in parts])
        last = self._batch
        # Mostly nothing but numbers changed: the matrix of tables, too, stays the same object until it grows.
        if (
            last is None
            or last.sampling is not sampling
            or last.block_tables is not block_tables
            or last.logprobs is not logprobs
        ):
            last = self._batch = StepBatch(
                self._token_ids,
                self._positions,
                self._starts,
                block_tables,
                self._output_rows,
                sampling,
                logprobs,
            )
        return last
