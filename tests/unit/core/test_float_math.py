"""Float32 arithmetic against exact rational arithmetic and float64."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrum.core.float_math import (
    exp32,
    fma32,
    gelu_tanh32,
    lane_sum,
    lane_sum_of_squares,
    silu32,
    soft_cap32,
    tanh32,
)

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
LARGEST = Fraction(float(np.finfo(np.float32).max))
SMALLEST = Fraction(1, 2**149)


def round_to_float32(exact: Fraction) -> float:
    """The float32 nearest to an exact value, ties to even, overflow to infinity."""
    magnitude = abs(exact)
    if magnitude == 0:
        return 0.0
    exponent = math.floor(math.log2(magnitude)) if magnitude > Fraction(1, 2**1000) else -1000
    while Fraction(2) ** (exponent + 1) <= magnitude:
        exponent += 1
    while Fraction(2) ** exponent > magnitude:
        exponent -= 1
    unit = max(Fraction(2) ** (exponent - 23), SMALLEST)
    rounded = round(magnitude / unit) * unit  # Fraction rounds ties to even
    if rounded > LARGEST:
        return math.copysign(math.inf, exact)
    return math.copysign(float(rounded), exact)


def exact_fma(a: float, b: float, c: float) -> float:
    return round_to_float32(Fraction(a) * Fraction(b) + Fraction(c))


@given(FLOATS, FLOATS, FLOATS)
@settings(max_examples=500, deadline=None)
def test_fma_rounds_once_for_any_floats(a: float, b: float, c: float) -> None:
    assert fma32(np.float32(a), np.float32(b), np.float32(c)) == np.float32(exact_fma(a, b, c))


@given(st.integers(1, 2**24 - 1), st.integers(1, 2**24 - 1), st.integers(-60, 60), st.booleans())
@settings(max_examples=300, deadline=None)
def test_fma_rounds_once_near_halfway(a: int, b: int, shift: int, is_negative: bool) -> None:
    """Addends next to the product's own midpoints are where two roundings would go wrong."""
    product = Fraction(a) * b
    addend = float(np.float32(math.ldexp(-1.0 if is_negative else 1.0, shift)))
    for c in (addend, addend - float(np.float32(product)), -float(np.float32(product))):
        c32 = float(np.float32(c))
        assert fma32(np.float32(a), np.float32(b), np.float32(c32)) == np.float32(exact_fma(a, b, c32))


def test_fma_rounds_a_known_double_rounding_case_once() -> None:
    # a * a = 1 + 2^-11 + 2^-24 lies halfway between two float32; float64 cannot hold the addend beside it.
    a = np.float32(1 + 2**-12)
    rest = np.float32(2**-80)
    assert fma32(a, a, rest) == np.float32(1 + 2**-11 + 2**-23)
    assert fma32(a, a, -rest) == np.float32(1 + 2**-11)
    assert fma32(a, a, np.float32(0)) == np.float32(1 + 2**-11)  # a true tie, to even
    assert fma32(-a, a, -rest) == -np.float32(1 + 2**-11 + 2**-23)
    assert fma32(-a, a, rest) == -np.float32(1 + 2**-11)


def test_fma_rounds_subnormal_results_once() -> None:
    tiny = np.float32(2**-149)
    half = np.float32(0.5)
    assert fma32(tiny, half, np.float32(0.0)) == 0.0  # tie, to even
    assert fma32(tiny, np.float32(1.5), np.float32(0.0)) == np.float32(2**-148)
    assert fma32(tiny, half, tiny) == np.float32(2**-148)


def test_fma_passes_infinity_and_nan() -> None:
    infinity = np.float32(np.inf)
    assert fma32(infinity, np.float32(1), np.float32(1)) == np.inf
    assert np.isnan(fma32(infinity, np.float32(0), np.float32(1)))
    assert np.isnan(fma32(np.float32(1), np.float32(np.nan), np.float32(1)))
    assert fma32(np.float32(3e38), np.float32(3e38), np.float32(0)) == np.inf


def test_fma_broadcasts() -> None:
    result = fma32(np.ones((3, 1), np.float32), np.ones((1, 2), np.float32), np.float32(1))
    assert result.shape == (3, 2)
    assert result.dtype == np.float32
    assert fma32(np.float32(1), np.float32(1), np.float32(1)).shape == ()


def test_exp_is_within_two_units_in_the_last_place() -> None:
    generator = np.random.default_rng(0)
    x = np.concatenate(
        [
            generator.uniform(-87.3, 88.7, 200_000),
            generator.normal(0, 1e-3, 10_000),
            [0.0, -0.0, 1.0, 88.72283, -87.33654],
        ]
    ).astype(np.float32)
    expected = np.exp(x.astype(np.float64))
    error = np.abs(exp32(x).astype(np.float64) - expected) / np.spacing(expected.astype(np.float32))
    assert error.max() <= 2.0


def test_exp_ends() -> None:
    x = np.array([-np.inf, -87.4, -1e30, np.inf, 100.0, np.nan], dtype=np.float32)
    result = exp32(x)
    assert result[:3].tolist() == [0.0, 0.0, 0.0]
    assert not np.signbit(result[:3]).any()
    assert np.isfinite(result[3:5]).all()
    assert result[3] == result[4] > 3.4e38
    assert np.isnan(result[5])
    assert exp32(np.zeros(1, np.float32))[0] == 1.0


@pytest.mark.parametrize(
    ("function", "reference"),
    [
        (silu32, lambda x: x / (1 + np.exp(-x))),
        (gelu_tanh32, lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
        (tanh32, np.tanh),
        (lambda x: soft_cap32(x, 30.0), lambda x: 30 * np.tanh(x / 30)),
    ],
)
def test_activations_follow_their_formula(function, reference) -> None:
    x = np.linspace(-30, 30, 20_001, dtype=np.float32)
    result = function(x)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, reference(x.astype(np.float64)), rtol=2e-6, atol=3e-6)


def test_activations_stay_finite_far_out() -> None:
    x = np.array([-1e4, 1e4, -1e20, 1e20], dtype=np.float32)
    assert np.isfinite(silu32(x)).all()
    assert np.isfinite(gelu_tanh32(x)).all()
    assert tanh32(x).tolist() == [-1, 1, -1, 1]


def test_lane_sum_adds_in_sixteen_lanes_and_folds() -> None:
    # 2^24 + 1 + 1 is 2^24 in one lane, but the ones survive in lanes of their own.
    values = np.zeros(33, dtype=np.float32)
    values[[0, 16, 32]] = [2**24, 1, 1]
    assert lane_sum(values) == 2**24
    values = np.zeros(33, dtype=np.float32)
    values[[0, 1, 5]] = [2**24, 1, 1]
    # Fold 16: lanes 0, 1, 5; fold to 4: lane 1 + lane 5 = 2; then 2^24 + 2.
    assert lane_sum(values) == 2**24 + 2
    values[[0, 1, 5, 8]] = [2**24, 0, 0, 1]
    assert lane_sum(values) == 2**24


def test_lane_sums_agree_with_float64() -> None:
    values = np.random.default_rng(1).normal(size=(4, 77)).astype(np.float32)
    exact = values.astype(np.float64)
    np.testing.assert_allclose(lane_sum(values), exact.sum(-1), rtol=0, atol=1e-5)
    np.testing.assert_allclose(lane_sum_of_squares(values), (exact**2).sum(-1), rtol=1e-6)
