"""PagedKv: the interpreter's cache of keys and values in blocks of 32 positions, found by block tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ferrum.core.arrays import FloatArray, Int32Array
from ferrum.plan.model_plan import KvLayer

BLOCK_TOKENS: Final = 32


class PagedKv:
    """Mutable: ``write`` changes blocks. Values are rounded to ``kv_type`` when written, never again."""

    def __init__(self, layers: Sequence[KvLayer], num_blocks: int, kv_type: DTypeLike) -> None:
        self._layers = tuple(
            np.zeros((2, num_blocks, BLOCK_TOKENS, layer.num_heads, layer.head_width), kv_type)
            for layer in layers
        )

    def write(
        self, layer: int, block_table: Int32Array, positions: Int32Array, k: FloatArray, v: FloatArray
    ) -> None:
        """``k`` and ``v`` [rows, heads * head_width] of one sequence go to ``positions`` [rows]."""
        store = self._layers[layer]
        blocks, offsets = block_table[positions // BLOCK_TOKENS], positions % BLOCK_TOKENS
        with np.errstate(over="ignore"):
            for half, values in enumerate((k, v)):
                store[half, blocks, offsets] = values.reshape(len(values), *store.shape[3:])

    def read(
        self, layer: int, block_table: Int32Array, length: int
    ) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Keys and values of positions 0 to ``length`` (exclusive): two of [length, heads, head_width]."""
        store = self._layers[layer]
        blocks = store[:, block_table[: -(-length // BLOCK_TOKENS)]]
        keys, values = blocks.reshape(2, -1, *store.shape[3:])[:, :length]
        return keys, values
