"""Blockwise attention: against plain softmax in float64, and bitwise laws that the engine stands on."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ferrum.core.arrays import FloatArray
from ferrum.runtimes.exact_attention import attention_exact, visible_keys
from ferrum.runtimes.exact_linear import quantise_groups
from ferrum.runtimes.paged_kv import CachedRows

LENGTH = 300  # three pieces, the last block not full


def half(rows: FloatArray) -> CachedRows:
    return CachedRows(rows.astype(np.float16))


def int8(rows: FloatArray) -> CachedRows:
    return CachedRows(*quantise_groups(rows))


def random_inputs(cached=half, heads: int = 4, kv_heads: int = 2, width: int = 8):
    generator = np.random.default_rng(0)
    q = (2 * generator.normal(size=(LENGTH, heads, width))).astype(np.float32)
    # Tokens of very different size: each int8 row has a scale of its own.
    sizes = generator.uniform(0.25, 1, (LENGTH, 1, 1))
    keys = cached((sizes * generator.normal(size=(LENGTH, kv_heads, width))).astype(np.float32))
    values = cached((sizes * generator.normal(size=(LENGTH, kv_heads, width))).astype(np.float32))
    return q, keys, values


def exact_values(rows: CachedRows) -> NDArray[np.float64]:
    values = rows.values.astype(np.float64)
    return values if rows.scales is None else values * rows.scales.astype(np.float64)[..., None]


def until(rows: CachedRows, length: int) -> CachedRows:
    return CachedRows(rows.values[:length], None if rows.scales is None else rows.scales[:length])


def plain_attention(q, keys, values, scale, window, soft_cap) -> FloatArray:
    group = q.shape[1] // keys.values.shape[1]
    k = np.repeat(exact_values(keys), group, axis=1)
    v = np.repeat(exact_values(values), group, axis=1)
    scores = np.einsum("qhd,khd->hqk", q.astype(np.float64) * scale, k)
    if soft_cap is not None:
        scores = soft_cap * np.tanh(scores / soft_cap)
    i, j = np.indices(scores.shape[1:])
    hidden = (j > i) | ((i - j >= window) if window is not None else False)
    scores[:, hidden] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", weights, v).astype(np.float32)


@pytest.mark.parametrize("window", [None, 1, 32, 100, 1000])
@pytest.mark.parametrize("soft_cap", [None, 5.0])
@pytest.mark.parametrize("cached", [half, int8])
def test_blockwise_attention_is_softmax_attention(cached, window, soft_cap) -> None:
    q, keys, values = random_inputs(cached)
    positions = np.arange(LENGTH, dtype=np.int32)
    result = attention_exact(q, keys, values, positions, scale=0.35, window=window, soft_cap=soft_cap)
    expected = plain_attention(q, keys, values, 0.35, window, soft_cap)
    np.testing.assert_allclose(result, expected, atol=2e-6)


@pytest.mark.parametrize("window", [None, 50])
@pytest.mark.parametrize("cached", [half, int8])
def test_a_row_has_the_same_bits_alone_and_in_a_chunk(cached, window) -> None:
    q, keys, values = random_inputs(cached)
    positions = np.arange(LENGTH, dtype=np.int32)
    together = attention_exact(q, keys, values, positions, scale=0.35, window=window)
    for i in (0, 31, 32, 127, 128, 255, 299):
        cut_keys, cut_values = until(keys, i + 1), until(values, i + 1)
        alone = attention_exact(
            q[i : i + 1], cut_keys, cut_values, positions[i : i + 1], scale=0.35, window=window
        )
        assert alone.tobytes() == together[i : i + 1].tobytes()


def test_the_first_token_sees_only_itself() -> None:
    q, keys, values = random_inputs(heads=1, kv_heads=1)
    result = attention_exact(q[:1], keys, values, np.zeros(1, np.int32), scale=1.0)
    assert (result[0, 0] == values.values[0, 0].astype(np.float32)).all()


def test_an_int8_row_is_within_half_a_code_of_what_it_was() -> None:
    rows = np.random.default_rng(1).normal(size=(50, 2, 16)).astype(np.float32)
    cached = int8(rows)
    assert cached.scales is not None
    error = np.abs(exact_values(cached) - rows)
    assert (error <= 0.5001 * cached.scales[..., None]).all()
    assert (np.abs(cached.values).max(axis=-1) == 127).all()


def test_an_int8_row_near_zero_is_kept_as_zeros() -> None:
    cached = int8(np.full((1, 1, 16), 1e-31, np.float32))
    assert not cached.values.any()
    assert cached.scales == np.zeros((1, 1), np.float32)


def test_a_window_counts_the_query_itself() -> None:
    visible = visible_keys(np.array([4], np.int32), np.arange(6, dtype=np.int32), 2)
    assert visible.tolist() == [[False, False, False, True, True, False]]
