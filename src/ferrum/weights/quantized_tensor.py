"""A tensor as its file stores it: bytes in blocks, not yet numbers. Knows nothing of files or models."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ferrum.core.arrays import ByteArray
from ferrum.weights.tensor_types import TensorType


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedTensor:
    """A named weight in its stored bits.

    ``shape`` is row-major: ``(rows, columns)``, ``(columns,)``, or with experts in front (GGUF: reversed).
    ``data`` is a flat, read-only view of the bytes, usually into the memory map, which it keeps alive.
    """

    name: str
    type: TensorType
    shape: tuple[int, ...]
    data: ByteArray  # [num_bytes]

    def __post_init__(self) -> None:
        assert self.data.ndim == 1, self.data.shape
        expected = self.num_rows * self.row_bytes
        assert self.data.size == expected, (self.name, self.data.size, expected)

    @property
    def num_bytes(self) -> int:
        return int(self.data.size)

    @property
    def columns(self) -> int:
        """Length of the innermost dimension, the one that is stored contiguously."""
        return self.shape[-1]

    @property
    def num_rows(self) -> int:
        """Rows when all but the innermost dimension are flattened; 1 for a vector."""
        return math.prod(self.shape[:-1])

    @property
    def row_bytes(self) -> int:
        return self.type.row_bytes(self.columns)

    def rows(self, start: int, stop: int) -> QuantizedTensor:
        """Rows ``start`` to ``stop`` (exclusive) of the flattened rows, as a view of the same bytes."""
        assert 0 <= start <= stop <= self.num_rows, (start, stop, self.shape)
        part = self.data[start * self.row_bytes : stop * self.row_bytes]
        return QuantizedTensor(self.name, self.type, (stop - start, self.columns), part)
