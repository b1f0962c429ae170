"""PagedKv: the interpreter's cache of keys and values in blocks of 32 positions, found by block tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ferrum.core.arrays import FloatArray, Int32Array
from ferrum.plan.model_plan import KvLayer
from ferrum.runtimes.exact_linear import quantise_groups

BLOCK_TOKENS: Final = 32


@dataclass(frozen=True, slots=True, eq=False)
class CachedRows:
    """Keys or values as they are kept: values, or int8 codes and a scale for each position and head."""

    values: NDArray[Any]  # [positions, heads, width], a float type or int8
    scales: FloatArray | None = None  # [positions, heads]


class PagedKv:
    """Mutable: ``write`` changes blocks. Values are rounded to ``kv_type`` when written, never again.

    ``kv_type`` int8 quantises the values of a token and head together.
    """

    def __init__(self, layers: Sequence[KvLayer], num_blocks: int, kv_type: DTypeLike) -> None:
        shapes = [(2, num_blocks, BLOCK_TOKENS, layer.num_heads, layer.head_width) for layer in layers]
        self._values = tuple(np.zeros(shape, kv_type) for shape in shapes)
        self._scales = (
            tuple(np.zeros(shape[:-1], np.float32) for shape in shapes)
            if np.dtype(kv_type) == np.int8
            else None
        )

    def write(
        self, layer: int, block_table: Int32Array, positions: Int32Array, k: FloatArray, v: FloatArray
    ) -> None:
        """``k`` and ``v`` [rows, heads * head_width] of one sequence go to ``positions`` [rows]."""
        store = self._values[layer]
        blocks, offsets = block_table[positions // BLOCK_TOKENS], positions % BLOCK_TOKENS
        for half, rows in enumerate((k, v)):
            heads = rows.reshape(len(rows), *store.shape[3:])
            if self._scales is None:
                with np.errstate(over="ignore"):
                    store[half, blocks, offsets] = heads
            else:
                codes, scales = quantise_groups(heads)
                store[half, blocks, offsets] = codes
                self._scales[layer][half, blocks, offsets] = scales

    @property
    def block_bytes(self) -> int:
        """Bytes of one block in all layers."""
        return sum(array[:, :1].nbytes for array in self._arrays())

    def copy_block(self, source: int, target: int) -> None:
        for array in self._arrays():
            array[:, target] = array[:, source]

    def read_block(self, block: int) -> bytes:
        return b"".join(array[:, block].tobytes() for array in self._arrays())

    def write_block(self, block: int, content: bytes) -> None:
        assert len(content) == self.block_bytes
        start = 0
        for array in self._arrays():
            part = np.frombuffer(content, array.dtype, array[:, block].size, start)
            array[:, block] = part.reshape(array[:, block].shape)
            start += part.nbytes

    def _arrays(self) -> tuple[NDArray[Any], ...]:
        """All there is of blocks, [2, blocks, ...] each."""
        return (*self._values, *(self._scales or ()))

    def read(self, layer: int, block_table: Int32Array, length: int) -> tuple[CachedRows, CachedRows]:
        """Keys and values of positions 0 to ``length`` (exclusive)."""
        used = block_table[: -(-length // BLOCK_TOKENS)]
        keys, values = _positions(self._values[layer][:, used], length)
        if self._scales is None:
            return CachedRows(keys), CachedRows(values)
        key_scales, value_scales = _positions(self._scales[layer][:, used], length)
        return CachedRows(keys, key_scales), CachedRows(values, value_scales)


def _positions(blocks: NDArray[Any], length: int) -> NDArray[Any]:
    """[2, blocks, 32, ...] to [2, length, ...]."""
    return blocks.reshape(2, -1, *blocks.shape[3:])[:, :length]
