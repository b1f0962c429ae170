"""Attention with the kernels' own arithmetic, to the last bit: "Attention" of docs/numerics.md.

Softmax over pieces of 128 keys, counted from position 0 and merged in order (M. Milakov and N. Gimelshein,
"Online normalizer calculation for softmax", 2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ferrum.core.arrays import FloatArray, Int32Array
from ferrum.core.float_math import exp32, fma32, lane_sum, soft_cap32
from ferrum.runtimes.paged_kv import CachedRows

PIECE_KEYS: Final = 128

BoolArray = NDArray[np.bool_]


def attention_exact(
    q: FloatArray,
    keys: CachedRows,
    values: CachedRows,
    positions: Int32Array,
    *,
    scale: float,
    window: int | None = None,
    soft_cap: float | None = None,
) -> FloatArray:
    """Causal attention of the rows of one sequence over its whole cache.

    ``q`` [rows, heads, width] stands at ``positions`` [rows]; ``keys`` and ``values``
    [positions, kv heads, width] hold every position from 0 to the last row's. Returns [rows, heads, width].
    """
    length, kv_heads = keys.values.shape[:2]
    group = q.shape[1] // kv_heads
    scaled = q * np.float32(scale)
    merged = _SoftmaxState.empty(q.shape)
    for start in range(0, int(positions.max()) + 1, PIECE_KEYS):
        piece = slice(start, min(start + PIECE_KEYS, length))
        visible = visible_keys(positions, np.arange(length, dtype=np.int32)[piece], window)
        rows = np.flatnonzero(visible.any(axis=1))
        if len(rows) == 0:
            continue
        scores = _scores(scaled[rows], _for_query_heads(keys, piece, group), soft_cap)
        state = _SoftmaxState.of_piece(scores, _for_query_heads(values, piece, group), visible[rows])
        merged.put(rows, merged.take(rows).with_piece(state))
    return merged.outputs / merged.total[..., None]


def visible_keys(positions: Int32Array, key_positions: Int32Array, window: int | None) -> BoolArray:
    """Which keys a query sees, [rows, keys]: its own position and earlier, ``window`` of them at most."""
    distance = positions[:, None] - key_positions[None, :]
    visible = distance >= 0
    return visible if window is None else visible & (distance < window)


def _for_query_heads(cached: CachedRows, piece: slice, group: int) -> CachedRows:
    """The piece's rows in float32, each KV head repeated for the query heads that read it."""
    values = np.repeat(cached.values[piece].astype(np.float32), group, axis=1)
    if cached.scales is None:
        return CachedRows(values)
    return CachedRows(values, np.repeat(cached.scales[piece], group, axis=1))


def _scores(scaled: FloatArray, keys: CachedRows, soft_cap: float | None) -> FloatArray:
    """[rows, heads, width] with [keys, heads, width] to [rows, heads, keys]."""
    rows, heads, width = scaled.shape
    scores: FloatArray = np.zeros((rows, heads, len(keys.values)), np.float32)
    for d in range(width):
        scores = fma32(scaled[:, :, d][..., None], keys.values[:, :, d].T[None], scores)
    if keys.scales is not None:
        scores = scores * keys.scales.T[None]
    return scores if soft_cap is None else soft_cap32(scores, soft_cap)


@dataclass(frozen=True, slots=True, eq=False)
class _SoftmaxState:
    """Running maximum, sum of exponentials and weighted values of rows; ``put`` writes into the arrays."""

    maximum: FloatArray  # [rows, heads]
    total: FloatArray  # [rows, heads]
    outputs: FloatArray  # [rows, heads, width]

    @staticmethod
    def empty(shape: tuple[int, ...]) -> _SoftmaxState:
        return _SoftmaxState(
            np.full(shape[:2], -np.inf, np.float32),
            np.zeros(shape[:2], np.float32),
            np.zeros(shape, np.float32),
        )

    @staticmethod
    def of_piece(scores: FloatArray, values: CachedRows, visible: BoolArray) -> _SoftmaxState:
        """``scores`` [rows, heads, keys], ``values`` [keys, heads, width], ``visible`` [rows, keys]."""
        mask = visible[:, None, :]
        maximum = np.where(mask, scores, -np.inf).max(axis=-1).astype(np.float32)
        weights = np.where(mask, exp32(scores - maximum[..., None]), np.float32(0)).astype(np.float32)
        folded = weights if values.scales is None else weights * values.scales.T[None]
        outputs: FloatArray = np.zeros((*scores.shape[:2], values.values.shape[-1]), np.float32)
        for t in range(len(values.values)):
            added = fma32(folded[:, :, t][..., None], values.values[t][None], outputs)
            outputs = np.where(visible[:, t][:, None, None], added, outputs)
        return _SoftmaxState(maximum, lane_sum(weights), outputs)

    def take(self, rows: NDArray[np.intp]) -> _SoftmaxState:
        return _SoftmaxState(self.maximum[rows], self.total[rows], self.outputs[rows])

    def put(self, rows: NDArray[np.intp], state: _SoftmaxState) -> None:
        self.maximum[rows], self.total[rows], self.outputs[rows] = state.maximum, state.total, state.outputs

    def with_piece(self, piece: _SoftmaxState) -> _SoftmaxState:
        maximum = np.maximum(self.maximum, piece.maximum)
        kept, added = exp32(self.maximum - maximum), exp32(piece.maximum - maximum)
        return _SoftmaxState(
            maximum,
            fma32(self.total, kept, piece.total * added),
            fma32(self.outputs, kept[..., None], piece.outputs * added[..., None]),
        )
