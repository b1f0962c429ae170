"""Brings a plan's matrices into the native runtime: a few megabytes at a time, packed by the whole team.

Each portion's pages of the file are released when it is packed, so that the file and the packed weights are
never both in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ferrum import _native
from ferrum.core.arrays import ByteArray
from ferrum.weights.mapped_pages import release_pages
from ferrum.weights.quantized_tensor import QuantizedTensor

# Enough that waiting for the last member does not count, little beside any model.
PORTION_BYTES = 32 << 20
TILE_ROWS = 16

_Part = tuple[int, int, ByteArray]  # weight, first row, rows as stored


class WeightLoading:
    """Collects tensors under the ids that the runtime gives them; ``pack`` fills all of them. Mutable."""

    def __init__(self, runtime: _native.Runtime, portion_bytes: int = PORTION_BYTES) -> None:
        self._runtime = runtime
        self._portion_bytes = portion_bytes
        self._tensors: list[tuple[int, QuantizedTensor]] = []

    def add(self, tensors: Sequence[QuantizedTensor]) -> range:
        """The ids of matrices, which must stay readable until ``pack``.

        Several have as many rows each, a multiple of 32, and lie together, some columns of each by turns: to
        be worked on like that.
        """
        shapes = [(each.type.ggml_id, each.num_rows, each.columns) for each in tensors]
        first = self._runtime.add_weights(shapes)
        ids = range(first, first + len(tensors))
        self._tensors += zip(ids, tensors, strict=True)
        return ids

    def pack(self) -> None:
        """Copies every tensor into the kernels' layout."""
        for portion in self._portions():
            self._runtime.pack_weights(portion)
            for _, _, data in portion:
                release_pages(data)
        self._tensors.clear()

    def _portions(self) -> Iterator[list[_Part]]:
        portion: list[_Part] = []
        num_bytes = 0
        for part in self._parts():
            portion.append(part)
            num_bytes += part[2].size
            if num_bytes >= self._portion_bytes:
                yield portion
                portion, num_bytes = [], 0
        yield portion

    def _parts(self) -> Iterator[_Part]:
        """Tensors in rows of at most a portion, cut where the kernels' tiles end."""
        for weight, tensor in self._tensors:
            step = max(1, self._portion_bytes // (TILE_ROWS * tensor.row_bytes)) * TILE_ROWS
            for start in range(0, tensor.num_rows, step):
                yield weight, start, tensor.rows(start, min(start + step, tensor.num_rows)).data
