"""Linear and embedding with the kernels' own arithmetic, to the last bit: the oracle of the native kernels.

"Activation quantisation", "Linear" and "Embedding" of docs/numerics.md as pure functions over arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ferrum.core.arrays import FloatArray, Int32Array
from ferrum.core.float_math import fma32
from ferrum.weights.block_formats import GroupedWeights, decode_groups, dequantize
from ferrum.weights.quantized_tensor import QuantizedTensor

ACTIVATION_GROUP: Final = 32
_LARGEST_CODE: Final = np.float32(127)
_SMALLEST_SCALED: Final = np.float32(1e-30)

# Output columns are done in tiles whose float64 temporaries (8 bytes a value) stay in the caches.
_TILE_VALUES: Final = 1 << 15


@dataclass(frozen=True, slots=True, eq=False)
class QuantisedActivations:
    """Rows as ``scale * code`` for each 32 values, padded with zeros to whole groups."""

    codes: NDArray[np.int8]  # [rows, groups * 32]
    scales: FloatArray  # [rows, groups]

    def sums(self, group_size: int) -> Int32Array:
        """The sum of every ``group_size`` (16 or 32) codes: [rows, groups]."""
        grouped = self.codes.reshape(len(self.codes), -1, group_size)
        return np.asarray(grouped.sum(axis=-1, dtype=np.int32))


def quantise_activations(x: FloatArray) -> QuantisedActivations:
    """``x``: [rows, columns]."""
    missing = -x.shape[1] % ACTIVATION_GROUP
    grouped = np.pad(x, ((0, 0), (0, missing))).reshape(len(x), -1, ACTIVATION_GROUP)
    codes, scales = quantise_groups(grouped)
    return QuantisedActivations(codes.reshape(len(x), -1), scales)


def quantise_groups(grouped: FloatArray) -> tuple[NDArray[np.int8], FloatArray]:
    """Codes [..., width] and scales [...] of ``grouped`` [..., width]: one scale for the last axis."""
    largest = np.abs(grouped).max(axis=-1)
    is_zero = largest < _SMALLEST_SCALED
    scales = np.where(is_zero, np.float32(0), largest / _LARGEST_CODE)
    inverse: FloatArray = np.zeros_like(largest)
    # Rows that hold an infinity have no useful codes; they get some.
    with np.errstate(over="ignore", invalid="ignore"):
        np.divide(_LARGEST_CODE, largest, out=inverse, where=~is_zero)
        codes = np.rint(grouped * inverse[..., None]).astype(np.int8)
    return codes, scales


def linear_exact(
    x: FloatArray, weight: QuantizedTensor | GroupedWeights | FloatArray, bias: FloatArray | None = None
) -> FloatArray:
    """``x`` [rows, K] times the transpose of ``weight`` [N, K], plus ``bias`` [N]: [rows, N].

    Quantised weights may be handed over decoded already, float weights (F32, F16, BF16) as float32 values.
    """
    if isinstance(weight, QuantizedTensor):
        weight = decode_groups(weight) if weight.type.is_quantized else dequantize(weight)
    result = (
        _linear_quantised(quantise_activations(x), weight)
        if isinstance(weight, GroupedWeights)
        else _linear_float(x, weight)
    )
    return result if bias is None else result + bias


def embed_exact(table: QuantizedTensor, token_ids: Int32Array, scale: float = 1.0) -> FloatArray:
    """The table's rows for ``token_ids``, times ``scale``: [tokens, columns]."""
    rows = table.data.reshape(table.num_rows, table.row_bytes)[token_ids]
    gathered = QuantizedTensor(table.name, table.type, (len(token_ids), table.columns), rows.reshape(-1))
    values = dequantize(gathered)
    return values if scale == 1.0 else values * np.float32(scale)


def _linear_quantised(activations: QuantisedActivations, weight: GroupedWeights) -> FloatArray:
    num_rows, num_outputs = len(activations.codes), len(weight.codes)
    size = weight.group_size
    num_groups = weight.codes.shape[1] // size
    codes = activations.codes.reshape(num_rows, num_groups, size).swapaxes(0, 1).astype(np.float32)
    scales = np.repeat(activations.scales, ACTIVATION_GROUP // size, axis=1)
    offsets = scales * activations.sums(size).astype(np.float32)
    result = np.empty((num_rows, num_outputs), np.float32)
    tile = max(1, _TILE_VALUES // max(1, num_rows))
    for start in range(0, num_outputs, tile):
        part = slice(start, start + tile)
        weight_codes = weight.codes[part].reshape(-1, num_groups, size).transpose(1, 2, 0).astype(np.float32)
        # At most 32 * 127 * 128 < 2^24: every partial sum is an exact float32, whatever the order.
        dots = np.matmul(codes, weight_codes)  # [groups, rows, tile]
        accumulator: FloatArray = np.zeros(dots.shape[1:], np.float32)
        for group in range(num_groups):
            factor = weight.scales[part, group][None, :] * scales[:, group][:, None]
            accumulator = fma32(dots[group], factor, accumulator)
            if weight.minimums is not None:
                minimum = weight.minimums[part, group][None, :]
                accumulator = fma32(minimum, offsets[:, group][:, None], accumulator)
        result[:, part] = accumulator
    return result


def _linear_float(x: FloatArray, weight: FloatArray) -> FloatArray:
    num_rows, num_outputs = len(x), len(weight)
    result = np.empty((num_rows, num_outputs), np.float32)
    tile = max(1, _TILE_VALUES // max(1, num_rows))
    for start in range(0, num_outputs, tile):
        columns = np.ascontiguousarray(weight[start : start + tile].T)  # [K, tile]
        accumulator: FloatArray = np.zeros((num_rows, columns.shape[1]), np.float32)
        for k in range(len(columns)):
            accumulator = fma32(x[:, k][:, None], columns[k][None, :], accumulator)
        result[:, start : start + tile] = accumulator
    return result
