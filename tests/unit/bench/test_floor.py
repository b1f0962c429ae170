"""Floors computed by hand from round ceilings."""

from __future__ import annotations

import pytest

from ferrum.bench.ceilings import mean_ceilings
from ferrum.bench.floor import Bound, Ceilings, floor_of
from ferrum.bench.step_work import StepWork
from ferrum.weights.tensor_types import TensorType

CEILINGS = Ceilings(
    read_bytes_per_second=1000.0,
    linear_operations={TensorType.Q4_0: 100.0, TensorType.Q8_0: 200.0},
    attention_operations=50.0,
)


def work(weights: int, kv: int, q4: int, q8: int, attention: int) -> StepWork:
    return StepWork(1, weights, kv, {TensorType.Q4_0: q4, TensorType.Q8_0: q8}, attention)


def test_the_longer_of_bytes_and_arithmetic_is_the_floor() -> None:
    floor = floor_of([work(weights=800, kv=200, q4=5, q8=10, attention=5)], CEILINGS)
    assert floor.bytes_s == pytest.approx(1.0)
    assert floor.arithmetic_s == pytest.approx(2 * 5 / 100 + 2 * 10 / 200 + 2 * 5 / 50)
    assert (floor.seconds, floor.bound) == (pytest.approx(1.0), Bound.BYTES)
    heavy = floor_of([work(weights=800, kv=200, q4=500, q8=0, attention=0)], CEILINGS)
    assert (heavy.seconds, heavy.bound) == (pytest.approx(10.0), Bound.ARITHMETIC)


def test_steps_follow_each_other() -> None:
    steps = [work(1000, 0, 0, 0, 0), work(0, 0, 100, 0, 0)]
    floor = floor_of(steps, CEILINGS)
    assert (floor.bytes_s, floor.arithmetic_s) == (pytest.approx(1.0), pytest.approx(2.0))
    # One step waits for memory and the other for arithmetic: neither hides the other.
    assert floor.seconds == pytest.approx(3.0)


def test_ceilings_around_a_measurement_are_averaged_and_reading_corrected() -> None:
    faster = Ceilings(3000.0, {TensorType.Q4_0: 300.0, TensorType.Q8_0: 200.0}, 70.0)
    mean = mean_ceilings((CEILINGS, faster), read_factor=1.5)
    assert mean.read_bytes_per_second == 3000.0
    assert mean.linear_operations == {TensorType.Q4_0: 200.0, TensorType.Q8_0: 200.0}
    assert mean.attention_operations == 60.0
