"""Single native kernels against the page's arithmetic in NumPy: equal bits, on every kernel set."""

from __future__ import annotations

import numpy as np
import pytest

from ferrum import _native
from ferrum.core.arrays import FloatArray
from ferrum.runtimes.exact_linear import linear_exact
from ferrum.weights.block_formats import dequantize
from ferrum.weights.quantized_tensor import QuantizedTensor
from ferrum.weights.tensor_types import TensorType
from tiny_models import random_tensor

KERNEL_SETS = _native.kernel_sets()
COLUMNS = 512


def stored_tensor(kind: TensorType, rows: int, columns: int, seed: int = 0) -> QuantizedTensor:
    _, stored, shape = random_tensor(np.random.default_rng(seed), kind, (rows, columns), 0.05)
    data = np.ascontiguousarray(stored).view(np.uint8).reshape(-1)
    return QuantizedTensor("weight", kind, shape, data)


def packed(tensor: QuantizedTensor) -> _native.kernels.PackedWeight:
    return _native.kernels.PackedWeight(tensor.type.ggml_id, *tensor.shape, tensor.data)


def native_linear(kernel_set: str, tensor: QuantizedTensor, x: FloatArray) -> FloatArray:
    rows = tensor.shape[0]
    out = np.full((len(x), -(-rows // 16) * 16), np.nan, np.float32)
    _native.kernels.linear(kernel_set, packed(tensor), x, out)
    assert not out[:, rows:].any()  # padded outputs are zeros: later operations rely on it
    return out[:, :rows]


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
@pytest.mark.parametrize("kind", list(TensorType))
@pytest.mark.parametrize("num_rows", [1, 2, 3, 8, 13])
def test_linear_has_the_bits_of_the_page(kernel_set: str, kind: TensorType, num_rows: int) -> None:
    tensor = stored_tensor(kind, 40, COLUMNS)
    x = np.random.default_rng(1).normal(0, 1, (num_rows, COLUMNS)).astype(np.float32)
    np.testing.assert_array_equal(native_linear(kernel_set, tensor, x), linear_exact(x, tensor))


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
@pytest.mark.parametrize("kind", list(TensorType))
def test_linear_survives_extreme_codes(kernel_set: str, kind: TensorType) -> None:
    """Every code and activation at its limit: integer sums may not wrap or saturate."""
    tensor = stored_tensor(kind, 32, COLUMNS)
    filled = tensor.data.copy()
    if kind.is_quantized:
        blocks = filled.reshape(-1, kind.block_bytes)
        ones = np.arange(len(blocks)) % 2 == 0
        blocks[ones] = np.where(_is_factor(kind), blocks[ones], 0xFF)
        blocks[~ones] = np.where(_is_factor(kind), blocks[~ones], 0x00)
        if kind is TensorType.Q8_0:
            blocks[~ones, 2:] = 0x80  # -128
    extreme = QuantizedTensor("weight", kind, tensor.shape, filled)
    x = np.where(np.arange(COLUMNS) % 64 < 32, 1.0, -1.0).astype(np.float32)
    x = np.stack([x, -x, np.ones_like(x), -np.ones_like(x)])
    np.testing.assert_array_equal(native_linear(kernel_set, extreme, x), linear_exact(x, extreme))


def _is_factor(kind: TensorType) -> np.ndarray:
    from tiny_models import FACTOR_OFFSETS

    mask = np.zeros(kind.block_bytes, bool)
    for start in FACTOR_OFFSETS[kind]:
        mask[start : start + 2] = True
    return mask


@pytest.mark.parametrize("kind", list(TensorType))
def test_a_row_read_back_from_the_packed_weight_is_its_dequantised_row(kind: TensorType) -> None:
    tensor = stored_tensor(kind, 37, COLUMNS)
    weight, out = packed(tensor), np.zeros(COLUMNS, np.float32)
    expected = dequantize(tensor)
    for row in range(37):
        weight.read_row(row, out)
        np.testing.assert_array_equal(out, expected[row])


@pytest.mark.parametrize("kind", list(TensorType))
def test_packing_keeps_the_bits_per_weight(kind: TensorType) -> None:
    tensor = stored_tensor(kind, 64, 2048)
    assert packed(tensor).num_bytes == tensor.num_bytes


def test_a_shape_that_does_not_suit_the_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="does not suit"):
        _native.kernels.PackedWeight(TensorType.Q4_0.ggml_id, 16, 40, np.zeros(400, np.uint8))
    with pytest.raises(ValueError, match="does not match"):
        _native.kernels.PackedWeight(TensorType.Q4_0.ggml_id, 16, 64, np.zeros(400, np.uint8))


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
@pytest.mark.parametrize("factor", [0.0, 1e-45, 1e-40, 1e-31, 1e-30, 1e-20, 1e20])
def test_activations_of_any_size_have_the_bits_of_the_page(kernel_set: str, factor: float) -> None:
    tensor = stored_tensor(TensorType.Q4_1, 16, 64)
    x = (np.random.default_rng(3).uniform(-1, 1, (2, 64)) * factor).astype(np.float32)
    np.testing.assert_array_equal(native_linear(kernel_set, tensor, x), linear_exact(x, tensor))
