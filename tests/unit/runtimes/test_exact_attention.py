"""Blockwise attention: against plain softmax in float64, and bitwise laws that the engine stands on."""

from __future__ import annotations

import numpy as np
import pytest

from ferrum.core.arrays import FloatArray
from ferrum.runtimes.exact_attention import attention_exact, visible_keys

LENGTH = 300  # three pieces, the last block not full


def random_inputs(heads: int = 4, kv_heads: int = 2, width: int = 8):  # type: ignore[no-untyped-def]
    generator = np.random.default_rng(0)
    q = (2 * generator.normal(size=(LENGTH, heads, width))).astype(np.float32)
    keys = generator.normal(size=(LENGTH, kv_heads, width)).astype(np.float16)
    values = generator.normal(size=(LENGTH, kv_heads, width)).astype(np.float16)
    return q, keys, values


def plain_attention(q, keys, values, scale, window, soft_cap) -> FloatArray:  # type: ignore[no-untyped-def]
    group = q.shape[1] // keys.shape[1]
    k = np.repeat(keys.astype(np.float64), group, axis=1)
    v = np.repeat(values.astype(np.float64), group, axis=1)
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
def test_blockwise_attention_is_softmax_attention(window: int | None, soft_cap: float | None) -> None:
    q, keys, values = random_inputs()
    positions = np.arange(LENGTH, dtype=np.int32)
    result = attention_exact(q, keys, values, positions, scale=0.35, window=window, soft_cap=soft_cap)
    expected = plain_attention(q, keys, values, 0.35, window, soft_cap)
    np.testing.assert_allclose(result, expected, atol=2e-6)


@pytest.mark.parametrize("window", [None, 50])
def test_a_row_has_the_same_bits_alone_and_in_a_chunk(window: int | None) -> None:
    q, keys, values = random_inputs()
    positions = np.arange(LENGTH, dtype=np.int32)
    together = attention_exact(q, keys, values, positions, scale=0.35, window=window)
    for i in (0, 31, 32, 127, 128, 255, 299):
        cut = slice(0, i + 1)
        alone = attention_exact(
            q[i : i + 1], keys[cut], values[cut], positions[i : i + 1], scale=0.35, window=window
        )
        assert alone.tobytes() == together[i : i + 1].tobytes()


def test_the_first_token_sees_only_itself() -> None:
    q, keys, values = random_inputs(heads=1, kv_heads=1)
    result = attention_exact(q[:1], keys, values, np.zeros(1, np.int32), scale=1.0)
    assert (result[0, 0] == values[0, 0].astype(np.float32)).all()


def test_a_window_counts_the_query_itself() -> None:
    visible = visible_keys(np.array([4], np.int32), np.arange(6, dtype=np.int32), 2)
    assert visible.tolist() == [[False, False, False, True, True, False]]
