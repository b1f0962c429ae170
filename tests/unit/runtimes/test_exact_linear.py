"""Quantised linear arithmetic: against the page's own scalar recipe, and against exact values."""

from __future__ import annotations

import numpy as np
import pytest

from ferrum.core.arrays import FloatArray
from ferrum.core.float_math import fma32
from ferrum.runtimes.exact_linear import embed_exact, linear_exact, quantise_activations
from ferrum.weights.block_formats import GroupedWeights, dequantize
from ferrum.weights.quantized_tensor import QuantizedTensor
from ferrum.weights.tensor_types import TensorType


def grouped_weights(group_size: int, num_groups: int, has_minimums: bool, seed: int = 0) -> GroupedWeights:
    generator = np.random.default_rng(seed)
    shape = (5, num_groups)
    return GroupedWeights(
        codes=generator.integers(-128, 128, (5, num_groups * group_size)).astype(np.int8),
        group_size=group_size,
        scales=generator.normal(size=shape).astype(np.float32),
        minimums=generator.normal(size=shape).astype(np.float32) if has_minimums else None,
    )


def linear_by_the_page(x: FloatArray, weight: GroupedWeights) -> FloatArray:
    """docs/numerics.md read aloud, one output at a time."""
    result = np.zeros((len(x), len(weight.codes)), np.float32)
    for row, values in enumerate(x):
        codes, scales = [], []
        for start in range(0, len(values), 32):
            group = values[start : start + 32]
            largest = np.abs(group).max()
            scales.append(largest / np.float32(127))
            inverse = np.float32(127) / largest if largest > 0 else np.float32(0)
            codes += [int(np.rint(value * inverse)) for value in group]
        for column in range(len(weight.codes)):
            accumulator = np.float32(0)
            for g in range(weight.scales.shape[1]):
                span = range(g * weight.group_size, (g + 1) * weight.group_size)
                scale = scales[g * weight.group_size // 32]
                dot = sum(int(weight.codes[column, k]) * codes[k] for k in span)
                factor = weight.scales[column, g] * scale
                accumulator = fma32(np.float32(dot), factor, accumulator)
                if weight.minimums is not None:
                    offset = scale * np.float32(sum(codes[k] for k in span))
                    accumulator = fma32(weight.minimums[column, g], offset, accumulator)
            result[row, column] = accumulator
    return result


@pytest.mark.parametrize("group_size", [16, 32])
@pytest.mark.parametrize("has_minimums", [False, True])
def test_quantised_linear_has_the_bits_of_the_page(group_size: int, has_minimums: bool) -> None:
    weight = grouped_weights(group_size, 128 // group_size, has_minimums)
    x = np.random.default_rng(1).normal(size=(3, 128)).astype(np.float32)
    x[1, 32:64] = 0
    expected = linear_by_the_page(x, weight)
    assert linear_exact(x, weight).tobytes() == expected.tobytes()


def test_linear_rows_do_not_depend_on_each_other() -> None:
    weight = grouped_weights(32, 4, True)
    x = np.random.default_rng(2).normal(size=(9, 128)).astype(np.float32)
    together = linear_exact(x, weight)
    alone = np.concatenate([linear_exact(row[None], weight) for row in x])
    assert together.tobytes() == alone.tobytes()


def test_linear_is_exact_where_nothing_rounds() -> None:
    codes = np.random.default_rng(3).integers(-127, 128, (2, 32)).astype(np.int8)
    x = np.random.default_rng(4).integers(-127, 128, (2, 32)).astype(np.float32)
    x[:, 0] = 127  # scale 1: activation codes are the values
    weight = GroupedWeights(codes, 32, np.ones((2, 1), np.float32), None)
    assert (linear_exact(x, weight) == x @ codes.astype(np.float32).T).all()
    bias = np.array([0.5, -2.0], np.float32)
    assert (linear_exact(x, weight, bias) == x @ codes.astype(np.float32).T + bias).all()


def test_float_weights_are_used_without_quantising_the_activation() -> None:
    generator = np.random.default_rng(5)
    weight = generator.normal(size=(7, 40)).astype(np.float32)
    x = generator.normal(size=(3, 40)).astype(np.float32)
    expected = np.zeros((3, 7), np.float32)
    for k in range(40):
        expected = fma32(x[:, k][:, None], weight[:, k][None], expected)
    assert linear_exact(x, weight).tobytes() == expected.tobytes()
    tensor = QuantizedTensor("w", TensorType.F16, (7, 40), weight.astype("<f2").reshape(-1).view(np.uint8))
    np.testing.assert_allclose(linear_exact(x, tensor), x @ weight.T, atol=2e-2)


def test_activation_codes_reach_127_and_keep_sums() -> None:
    x = np.random.default_rng(6).normal(size=(4, 50)).astype(np.float32)
    quantised = quantise_activations(x)
    assert quantised.codes.shape == (4, 64)
    assert (np.abs(quantised.codes.reshape(4, 2, 32)).max(axis=-1) == 127).all()
    assert (quantised.codes[:, 50:] == 0).all()
    restored = quantised.codes.reshape(4, 2, 32) * quantised.scales[..., None]
    assert np.abs(restored.reshape(4, -1)[:, :50] - x).max() <= quantised.scales.max() / 2 * 1.0001
    assert (quantised.sums(16) == quantised.codes.reshape(4, 4, 16).sum(-1, dtype=int)).all()


@pytest.mark.parametrize("largest", [0.0, 1e-45, 9e-31])
def test_a_row_of_zeros_or_next_to_it_quantises_to_zeros(largest: float) -> None:
    quantised = quantise_activations(np.full((1, 32), largest, np.float32))
    assert not quantised.codes.any()
    assert not quantised.scales.any()


def test_embedding_gathers_and_scales_rows() -> None:
    data = np.random.default_rng(7).integers(0, 100, 6 * 2 * 34).astype(np.uint8)
    table = QuantizedTensor("embed", TensorType.Q8_0, (6, 64), data)
    ids = np.array([5, 0, 5], np.int32)
    expected = dequantize(table)[ids]
    assert embed_exact(table, ids).tobytes() == expected.tobytes()
    assert embed_exact(table, ids, 1.7).tobytes() == (expected * np.float32(1.7)).tobytes()
