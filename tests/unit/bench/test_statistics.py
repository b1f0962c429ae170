"""Percentiles and spreads on values whose answers are known by hand or from NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrum.bench.statistics import median, percentile, percentiles_of, spread_of


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40),
    st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.99, 1.0]),
)
def test_percentiles_are_those_of_numpy(values: list[float], share: float) -> None:
    expected = float(np.percentile(values, 100 * share))
    assert percentile(values, share) == pytest.approx(expected, abs=1e-6)


def test_the_median_of_an_even_number_lies_between_the_middle_two() -> None:
    assert median([4.0, 1.0, 3.0, 2.0]) == 2.5
    assert median([7.0]) == 7.0


def test_a_spread_is_relative_to_the_median() -> None:
    spread = spread_of([100.0, 90.0, 120.0])
    assert (spread.median, spread.lowest, spread.highest, spread.repetitions) == (100.0, 90.0, 120.0, 3)
    assert spread.relative == pytest.approx(0.3)
    assert spread.as_json()["spread"] == spread.relative
    assert spread_of([0.0]).relative == 0.0


def test_nothing_measured_is_not_zero() -> None:
    assert percentiles_of([]) is None
    some = percentiles_of([float(value) for value in range(101)])
    assert some is not None
    assert (some.p50, some.p90, some.p99, some.largest, some.count) == (50.0, 90.0, 99.0, 100.0, 101)
