"""Block tables of one step as a matrix that changes little from step to step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ferrum.core.arrays import Int32Array
from ferrum.core.step import SequencePart


class BlockTableRows:
    """A row for each part. Mutable; whoever writes the steps uses it.

    A request keeps its table, the same object, until it grows by a block, and mostly its place in the step,
    too. So most rows are what they were, and a long context costs no more than a short one.
    """

    def __init__(self) -> None:
        self._matrix: Int32Array = np.zeros((0, 0), np.int32)
        self._written: list[tuple[int, ...]] = []  # what each row of the matrix holds

    def rows_of(self, parts: Sequence[SequencePart]) -> Int32Array:
        """[num_parts, most blocks or more]; unused entries are 0. Valid until the next call."""
        self._make_room(len(parts), max(len(part.block_table) for part in parts))
        for row, part in enumerate(parts):
            table = part.block_table
            if self._written[row] is not table:
                self._matrix[row, : len(table)] = table
                self._matrix[row, len(table) :] = 0
                self._written[row] = table
        return self._matrix[: len(parts)]

    def _make_room(self, num_rows: int, num_blocks: int) -> None:
        rows, width = self._matrix.shape
        if num_rows <= rows and num_blocks <= width:
            return
        shape = (_next_size(num_rows, rows), _next_size(num_blocks, width))
        self._matrix = np.zeros(shape, np.int32)
        self._written = [()] * shape[0]


def _next_size(needed: int, present: int) -> int:
    """Grows by doubling, so that growing is rare."""
    return present if needed <= present else max(needed, 2 * present)
