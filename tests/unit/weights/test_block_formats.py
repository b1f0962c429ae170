"""Decoded blocks against the gguf package's own dequantisation, bit for bit, for every supported type."""

import math

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize as oracle
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrum.weights.block_formats import decode_groups, dequantize
from ferrum.weights.quantized_tensor import QuantizedTensor
from ferrum.weights.tensor_types import OTHER_TYPE_NAMES, SUPPORTED_TYPES, TensorType

QUANTIZED = [kind for kind in TensorType if kind.is_quantized]
# Where each block keeps its float16 factors; random bytes there could be NaN, which no encoder writes.
HALF_OFFSETS = {
    TensorType.Q4_0: (0,),
    TensorType.Q4_1: (0, 2),
    TensorType.Q5_0: (0,),
    TensorType.Q5_1: (0, 2),
    TensorType.Q8_0: (0,),
    TensorType.Q2_K: (80, 82),
    TensorType.Q3_K: (108,),
    TensorType.Q4_K: (0, 2),
    TensorType.Q5_K: (0, 2),
    TensorType.Q6_K: (208,),
}


def random_tensor(kind: TensorType, shape: tuple[int, ...], seed: int) -> QuantizedTensor:
    generator = np.random.default_rng(seed)
    num_blocks = math.prod(shape) // kind.block_size
    blocks = generator.integers(0, 256, (num_blocks, kind.block_bytes), dtype=np.uint8)
    for offset in HALF_OFFSETS.get(kind, ()):
        halves = blocks[:, offset : offset + 2].copy().view("<u2")
        # Clear the lowest exponent bit of infinities and NaNs; subnormals and both signs stay.
        halves[(halves & 0x7C00) == 0x7C00] &= 0xFBFF
        blocks[:, offset : offset + 2] = halves.view(np.uint8)
    data = blocks.reshape(-1)
    data.flags.writeable = False
    return QuantizedTensor("t", kind, shape, data)


@pytest.mark.parametrize("kind", QUANTIZED)
@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32), rows=st.integers(1, 4), blocks=st.integers(1, 3))
def test_dequantized_bits_equal_the_oracle(kind: TensorType, seed: int, rows: int, blocks: int) -> None:
    # Bit equality holds: d * sc * q needs at most 11 + 7 + 5 of float32's 24 bits, so only adding the minimum
    # rounds, once, in both.
    tensor = random_tensor(kind, (rows, blocks * kind.block_size), seed)
    expected = oracle(tensor.data.reshape(rows, -1), gguf.GGMLQuantizationType(kind.ggml_id))
    got = dequantize(tensor)
    assert got.dtype == np.float32
    assert got.shape == tensor.shape
    np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))


CODE_RANGE = {
    TensorType.Q4_0: (-8, 7),
    TensorType.Q4_1: (0, 15),
    TensorType.Q5_0: (-16, 15),
    TensorType.Q5_1: (0, 31),
    TensorType.Q8_0: (-128, 127),
    TensorType.Q2_K: (0, 3),
    TensorType.Q3_K: (-4, 3),
    TensorType.Q4_K: (0, 15),
    TensorType.Q5_K: (0, 31),
    TensorType.Q6_K: (-32, 31),
}


@pytest.mark.parametrize("kind", QUANTIZED)
def test_codes_span_exactly_the_range_of_their_type(kind: TensorType) -> None:
    grouped = decode_groups(random_tensor(kind, (16, 1024), seed=1))
    assert (int(grouped.codes.min()), int(grouped.codes.max())) == CODE_RANGE[kind]
    assert grouped.codes.shape == (16, 1024)
    assert grouped.scales.shape == (16, 1024 // grouped.group_size)
    has_minimums = kind in (
        TensorType.Q4_1,
        TensorType.Q5_1,
        TensorType.Q2_K,
        TensorType.Q4_K,
        TensorType.Q5_K,
    )
    assert (grouped.minimums is not None) == has_minimums


def test_pieces_join_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = random_tensor(TensorType.Q5_K, (7, 512), seed=3)
    whole = dequantize(tensor)
    monkeypatch.setattr("ferrum.weights.block_formats.PIECE_ELEMENTS", 1024)
    np.testing.assert_array_equal(dequantize(tensor), whole)


def test_expert_tensors_and_vectors_keep_their_shape() -> None:
    experts = random_tensor(TensorType.Q6_K, (3, 2, 256), seed=4)
    assert dequantize(experts).shape == (3, 2, 256)
    assert decode_groups(experts).scales.shape == (3, 2, 16)
    vector = random_tensor(TensorType.Q8_0, (64,), seed=5)
    assert dequantize(vector).shape == (64,)
    assert decode_groups(vector).scales.shape == (2,)


def test_rows_are_a_view_of_the_same_bytes() -> None:
    tensor = random_tensor(TensorType.Q4_K, (6, 512), seed=6)
    part = tensor.rows(2, 5)
    assert np.shares_memory(part.data, tensor.data)
    np.testing.assert_array_equal(dequantize(part), dequantize(tensor)[2:5])


@pytest.mark.parametrize("kind", [TensorType.F32, TensorType.F16, TensorType.BF16])
def test_floats_are_widened_exactly(kind: TensorType) -> None:
    values = np.array([[0.0, -0.0, 1.5, -2.25], [0.125, 65280.0, 2.0**-14, -1.0]], np.float32)
    if kind is TensorType.F32:
        raw = values.astype("<f4").view(np.uint8)
    elif kind is TensorType.F16:
        raw = values.astype("<f2").view(np.uint8)
    else:
        raw = (values.view(np.uint32) >> 16).astype("<u2").view(np.uint8)
    got = dequantize(QuantizedTensor("t", kind, (2, 4), raw.reshape(-1)))
    np.testing.assert_array_equal(got.view(np.uint32), values.view(np.uint32))


@pytest.mark.parametrize("kind", list(TensorType))
def test_sizes_agree_with_the_oracle(kind: TensorType) -> None:
    assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind.name]] == (kind.block_size, kind.block_bytes)
    assert gguf.GGMLQuantizationType[kind.name].value == kind.ggml_id


def test_every_type_the_oracle_knows_has_a_name_here() -> None:
    for kind in gguf.GGMLQuantizationType:
        known = SUPPORTED_TYPES.get(kind.value)
        assert (known.name if known else OTHER_TYPE_NAMES[kind.value]) == kind.name


def test_an_infinite_scale_yields_values_not_warnings() -> None:
    block = np.zeros(18, np.uint8)
    block[0:2] = np.array([np.inf], "<f2").view(np.uint8)
    block[2:] = 0x88  # every code is 8 - 8 = 0
    assert np.isnan(dequantize(QuantizedTensor("t", TensorType.Q4_0, (32,), block))).all()
