"""Single native kernels against the page's arithmetic in NumPy: equal bits, on every kernel set."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrum import _native
from ferrum.core.arrays import FloatArray
from ferrum.core.step import SamplingInstruction
from ferrum.core.token_rules import TokenMask
from ferrum.runtimes.exact_linear import linear_exact
from ferrum.sampling.reference_sampler import allowed_tokens, choose
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
    # Only the 6-bit scales of K types grow, to a byte each: 4 bytes in 110 at most.
    assert tensor.num_bytes <= packed(tensor).num_bytes <= 1.037 * tensor.num_bytes


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


logits_rows = st.integers(0, 2**32 - 1).map(
    lambda seed: np.random.default_rng(seed).normal(0, 3, 700).astype(np.float32)
)
tied_rows = st.lists(st.sampled_from([0.0, 1.0, 2.0, -50.0]), min_size=1, max_size=80).map(
    lambda values: np.array(values, np.float32)
)


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
@settings(deadline=None, max_examples=150)
@given(
    logits=logits_rows | tied_rows,
    temperature=st.sampled_from([0.0, 1e-30, 1e-3, 0.3, 1.0, 1.7, 100.0]),
    top_k=st.sampled_from([0, 1, 2, 17, 300, 10_000]),
    top_p=st.sampled_from([1.0, 0.99, 0.9, 0.5, 1e-6]),
    min_p=st.sampled_from([0.0, 0.02, 0.5, 1.0]),
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(0, 2**31 - 1),
)
def test_sampling_chooses_the_reference_token(
    kernel_set: str,
    logits: FloatArray,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    seed: int,
    position: int,
) -> None:
    chosen = _native.kernels.sample(kernel_set, logits, temperature, top_k, top_p, min_p, seed, position)
    instruction = SamplingInstruction(temperature, top_k, top_p, min_p, seed, position)
    assert chosen == choose(logits, instruction)


masks = st.integers(0, 2**32 - 1).flatmap(
    lambda seed: st.sampled_from([0.002, 0.3, 0.99]).map(
        lambda share: np.packbits(
            np.random.default_rng(seed).random(32 * 22) < share, bitorder="little"
        ).view(np.uint32)
    )
)


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
@settings(deadline=None, max_examples=100)
@given(
    logits=logits_rows,
    mask=masks,
    temperature=st.sampled_from([0.0, 0.3, 1.7]),
    top_k=st.sampled_from([0, 17]),
    top_p=st.sampled_from([1.0, 0.9]),
    seed=st.integers(0, 2**64 - 1),
)
def test_masked_tokens_have_no_part_in_the_choice(
    kernel_set: str,
    logits: FloatArray,
    mask: TokenMask,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int,
) -> None:
    chosen = _native.kernels.sample(kernel_set, logits, temperature, top_k, top_p, 0.02, seed, 5, mask)
    allowed = np.flatnonzero(allowed_tokens(mask, len(logits)))
    if len(allowed) == 0:
        assert chosen == -2
        return
    masked = SamplingInstruction(temperature, top_k, top_p, 0.02, seed, 5, mask=mask)
    assert chosen == choose(logits, masked)
    # The same tokens alone in a vocabulary of their own are chosen alike.
    alone = SamplingInstruction(temperature, top_k, top_p, 0.02, seed, 5)
    assert chosen == allowed[choose(logits[allowed], alone)]


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
def test_bits_of_a_mask_beyond_the_vocabulary_allow_nothing(kernel_set: str) -> None:
    mask = np.array([0, 0, 0, 0xFFFFFFF8], np.uint32)
    assert _native.kernels.sample(kernel_set, np.zeros(99, np.float32), 1.0, 0, 1.0, 0.0, 1, 1, mask) == -2


def test_a_mask_that_does_not_fit_the_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match="a bit for each word"):
        _native.kernels.sample(
            "portable", np.zeros(99, np.float32), 1.0, 0, 1.0, 0.0, 1, 1, np.zeros(3, np.uint32)
        )


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 15, 16, 98])
@pytest.mark.parametrize(("temperature", "top_k", "top_p"), [(0.0, 0, 1.0), (1.0, 0, 1.0), (1.0, 5, 0.9)])
def test_no_token_is_chosen_from_logits_that_are_not_numbers(
    kernel_set: str, bad: float, place: int, temperature: float, top_k: int, top_p: float
) -> None:
    logits = np.linspace(-1, 1, 99, dtype=np.float32)
    logits[place] = bad
    assert _native.kernels.sample(kernel_set, logits, temperature, top_k, top_p, 0.0, 1, 1) == -1
