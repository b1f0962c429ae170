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
        self._rows = self._matrix  # of the step, those it begins with
        self._written: list[tuple[int, ...]] = []  # what each row of the matrix holds

    def rows_of(self, parts: Sequence[SequencePart]) -> Int32Array:
        """[num_parts, most blocks or more]; unused entries are 0. Valid until the next call.

        The same object as before while there are as many parts and none outgrows it.
        """
        if len(parts) != len(self._rows):
            self._resize(len(parts), self._matrix.shape[1])
        changed = self._changed(parts)
        if not changed:
            return self._rows
        widest = max(len(parts[row].block_table) for row in changed)
        if widest > self._matrix.shape[1]:
            self._resize(len(parts), widest)
            changed = self._changed(parts)
        for row in changed:
            table = parts[row].block_table
            self._matrix[row, : len(table)] = table
            self._matrix[row, len(table) :] = 0
            self._written[row] = table
        return self._rows

    def _changed(self, parts: Sequence[SequencePart]) -> list[int]:
        """The rows that hold another table than the parts', or an older state of it."""
        written = self._written
        return [row for row, part in enumerate(parts) if written[row] is not part.block_table]

    def _resize(self, num_rows: int, num_blocks: int) -> None:
        rows, width = self._matrix.shape
        if num_rows > rows or num_blocks > width:
            shape = (_next_size(num_rows, rows), _next_size(num_blocks, width))
            self._matrix = np.zeros(shape, np.int32)
            self._written = [()] * shape[0]
        self._rows = self._matrix[:num_rows]


def _next_size(needed: int, present: int) -> int:
    """Grows by doubling, so that growing is rare."""
    return present if needed <= present else max(needed, 2 * present)
