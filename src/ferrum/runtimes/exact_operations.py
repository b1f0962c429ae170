"""The row operations with the kernels' own arithmetic, to the last bit: see docs/numerics.md.

Pure functions over arrays; linear and attention have files of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ferrum.core.arrays import FloatArray, Int32Array, Uint64Array
from ferrum.core.float_math import fma32, gelu_tanh32, lane_sum_of_squares, silu32
from ferrum.plan.operations import ActivationKind, RopeStyle

_ONE: Final = np.float32(1.0)
_DIGEST_BASIS: Final = np.uint64(0xCBF29CE484222325)
_DIGEST_PRIME: Final = np.uint64(0x100000001B3)
_DIGEST_SHIFT: Final = np.uint64(29)

ACTIVATIONS: Mapping[ActivationKind, Callable[[FloatArray], FloatArray]] = MappingProxyType(
    {ActivationKind.SILU: silu32, ActivationKind.GELU_TANH: gelu_tanh32}
)


def rms_norm_exact(
    x: FloatArray, weight: FloatArray, epsilon: float, group_width: int | None = None
) -> FloatArray:
    """``x`` [rows, columns]; ``weight`` [columns], or [group_width] for groups normed one by one."""
    width = x.shape[1] if group_width is None else group_width
    grouped = x.reshape(len(x), -1, width)
    mean = lane_sum_of_squares(grouped) / np.float32(width)
    reciprocal = _ONE / np.sqrt(mean + np.float32(epsilon))
    return np.asarray((grouped * reciprocal[..., None]) * weight, np.float32).reshape(x.shape)


def rope_tables(
    positions: Int32Array, inverse_frequencies: tuple[float, ...]
) -> tuple[FloatArray, FloatArray]:
    """Cosine and sine of position * frequency, from float64: two of [rows, frequencies]."""
    angles = positions.astype(np.float64)[:, None] * np.array(inverse_frequencies, np.float64)[None, :]
    # Python's math is the C library's, as in the kernels; NumPy's vector code may round the last bit apart.
    cosines = np.array([math.cos(angle) for angle in angles.flat], np.float64)
    sines = np.array([math.sin(angle) for angle in angles.flat], np.float64)
    return cosines.astype(np.float32).reshape(angles.shape), sines.astype(np.float32).reshape(angles.shape)


def rope_exact(
    x: FloatArray,
    positions: Int32Array,
    head_width: int,
    style: RopeStyle,
    inverse_frequencies: tuple[float, ...],
) -> FloatArray:
    """``x`` [rows, heads * head_width]; values of a head past the frequencies' pairs stay as they are."""
    cosines, sines = (table[:, None, :] for table in rope_tables(positions, inverse_frequencies))
    first, second = rope_pairs(style, len(inverse_frequencies))
    heads = x.reshape(len(x), -1, head_width)
    a, b = heads[..., first], heads[..., second]
    rotated = heads.copy()
    rotated[..., first] = fma32(a, cosines, -(b * sines))
    rotated[..., second] = fma32(a, sines, b * cosines)
    return rotated.reshape(x.shape)


def rope_pairs(style: RopeStyle, num_pairs: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Indices of the first and of the second value of each pair."""
    pairs = np.arange(num_pairs)
    if style is RopeStyle.INTERLEAVED:
        return 2 * pairs, 2 * pairs + 1
    return pairs, pairs + num_pairs


def logit_digest(logits: FloatArray) -> Uint64Array:
    """One 64-bit digest of the bits of each row of ``logits`` [rows, vocabulary]: [rows]."""
    bits = np.ascontiguousarray(logits, np.float32).view(np.uint32).astype(np.uint64)
    digests = np.full(len(bits), _DIGEST_BASIS, np.uint64)
    for column in bits.T:
        digests = (digests ^ column) * _DIGEST_PRIME
        digests ^= digests >> _DIGEST_SHIFT
    return digests
