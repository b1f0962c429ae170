"""Float32 arithmetic to the last bit, vectorised in NumPy: the functions docs/numerics.md is written in.

Everything takes and gives float32 and rounds where the page says so. Knows nothing of models or kernels.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ferrum.core.arrays import FloatArray

LANES: Final = 16

# Cephes expf (S. Moshier, netlib cephes/single/expf.c).
_EXP_LOWEST: Final = np.float32(-87.33654)
_EXP_HIGHEST: Final = np.float32(88.72283)
_LOG2_E: Final = np.float32(1.44269504)
_LN2_HIGH: Final = np.float32(0.693359375)
_LN2_LOW: Final = np.float32(-2.12194440e-4)
_EXP_POLYNOMIAL: Final = tuple(
    np.float32(coefficient)
    for coefficient in (
        1.9875691500e-4,
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
    )
)
_LN2: Final = 0.69314718055994531
_SQRT_HALF: Final = 0.70710678118654752440
_ONE: Final = np.float32(1.0)
_TWO: Final = np.float32(2.0)

# float64 keeps 29 bits more than float32. A float64 can be halfway between two float32 (also between two
# subnormal ones) only if the lower 28 of them are zero.
_BITS_BELOW_HALFWAY: Final = np.int64((1 << 28) - 1)


def fma32(a: FloatArray | np.float32, b: FloatArray | np.float32, c: FloatArray | np.float32) -> FloatArray:
    """``a * b + c`` rounded once to float32, nearest even; arguments broadcast.

    The product of two float32 is exact in float64. The float64 sum rounds to odd before it rounds to float32,
    which makes the two roundings equal to one (S. Boldo and G. Melquiond, "Emulation of FMA and correctly
    rounded sums: proved algorithms using rounding to odd", IEEE Transactions on Computers 57, 2008).
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        product = np.multiply(a, b, dtype=np.float64)
        addend = np.asarray(c, dtype=np.float64)
        total = np.atleast_1d(np.add(product, addend))
        doubtful = (total.view(np.int64) & _BITS_BELOW_HALFWAY) == 0
        if doubtful.any():
            product, addend = np.broadcast_to(product, total.shape), np.broadcast_to(addend, total.shape)
            total[doubtful] = _round_to_odd(total[doubtful], product[doubtful], addend[doubtful])
        rounded = total.astype(np.float32)
    return rounded.reshape(np.broadcast_shapes(np.shape(a), np.shape(b), np.shape(c)))


def exp32(x: FloatArray) -> FloatArray:
    """e^x within 2 units in the last place; +0 below -87.33654, capped above 88.72283."""
    values = np.asarray(x, dtype=np.float32)
    reached = np.minimum(np.maximum(values, _EXP_LOWEST), _EXP_HIGHEST)
    n = np.rint(reached * _LOG2_E)
    r = fma32(n, -_LN2_HIGH, reached)
    r = fma32(n, -_LN2_LOW, r)
    polynomial: FloatArray = np.full_like(r, _EXP_POLYNOMIAL[0])
    for coefficient in _EXP_POLYNOMIAL[1:]:
        polynomial = fma32(polynomial, r, coefficient)
    y = fma32(polynomial, r * r, r) + _ONE
    with np.errstate(invalid="ignore"):  # a NaN stays one through y; its exponent does not matter
        exponent = n.astype(np.int32)
    half = exponent >> 1
    result = np.ldexp(np.ldexp(y, half), exponent - half)
    return np.where(values < _EXP_LOWEST, np.float32(0.0), result).astype(np.float32)


def tanh32(z: FloatArray) -> FloatArray:
    return np.asarray(_ONE - _TWO / (exp32(z + z) + _ONE), dtype=np.float32)


def soft_cap32(z: FloatArray, cap: float) -> FloatArray:
    """``cap * tanh(z / cap)``."""
    limit = np.float32(cap)
    return np.asarray(limit * tanh32(z / limit), dtype=np.float32)


def silu32(x: FloatArray) -> FloatArray:
    return np.asarray(x / (_ONE + exp32(-x)), dtype=np.float32)


def gelu_tanh32(x: FloatArray) -> FloatArray:
    """The tanh approximation of GELU (Hendrycks and Gimpel, 2016), as x times a logistic function."""
    with np.errstate(over="ignore"):
        cubic = (x * x) * np.float32(0.044715)
        u = np.float32(0.7978845608) * fma32(cubic, x, x)
        return np.asarray(x / (_ONE + exp32(-(u + u))), dtype=np.float32)


def lane_sum(values: FloatArray) -> FloatArray:
    """Sum over the last axis in 16 lanes, folded 16, 8, 4, 2, 1; shape [...]."""
    steps = _as_lanes(values)
    lanes: FloatArray = np.zeros((*steps.shape[:-2], LANES), dtype=np.float32)
    for index in range(steps.shape[-2]):
        lanes = lanes + steps[..., index, :]
    return _fold(lanes)


def lane_sum_of_squares(values: FloatArray) -> FloatArray:
    """Like ``lane_sum`` over the squares, each step one fma."""
    steps = _as_lanes(values)
    lanes: FloatArray = np.zeros((*steps.shape[:-2], LANES), dtype=np.float32)
    for index in range(steps.shape[-2]):
        lanes = fma32(steps[..., index, :], steps[..., index, :], lanes)
    return _fold(lanes)


def natural_log64(x: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """ln of positive normal float64, within 2 units in the last place, by additions, products, divisions.

    ln(m 2^e) = e ln 2 + 2 artanh((m - 1) / (m + 1)) with m in [sqrt(1/2), sqrt(2)), the series up to the 23rd
    power.
    """
    mantissa, exponent = np.frexp(np.asarray(x, dtype=np.float64))
    is_low = mantissa < _SQRT_HALF
    mantissa = np.where(is_low, 2.0 * mantissa, mantissa)
    exponent = exponent - is_low
    f = (mantissa - 1.0) / (mantissa + 1.0)
    square = f * f
    series = np.full_like(f, 1.0 / 23.0)
    for odd in range(21, 0, -2):
        series = series * square + 1.0 / odd
    return np.asarray(exponent * _LN2 + (f + f) * series, dtype=np.float64)


def _round_to_odd(
    total: NDArray[np.float64], product: NDArray[np.float64], addend: NDArray[np.float64]
) -> NDArray[np.float64]:
    """``product + addend`` rounded to odd, given ``total``, the same sum rounded to nearest."""
    addend_part = total - product
    error = (product - (total - addend_part)) + (addend - addend_part)  # Knuth's TwoSum
    bits = total.view(np.int64)
    move = (error != 0) & np.isfinite(error) & ((bits & 1) == 0)
    outwards = (error > 0) == (total > 0)
    return (bits + np.where(move, np.where(outwards, 1, -1), 0)).view(np.float64)


def _as_lanes(values: FloatArray) -> FloatArray:
    """[..., K] padded with zeros and cut to [..., steps, LANES]."""
    missing = -values.shape[-1] % LANES
    if missing:
        values = np.concatenate([values, np.zeros((*values.shape[:-1], missing), dtype=np.float32)], axis=-1)
    return values.reshape(*values.shape[:-1], -1, LANES)


def _fold(lanes: FloatArray) -> FloatArray:
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]
