"""Row operations against float64 and against the page's recipe."""

from __future__ import annotations

import numpy as np
import pytest

from ferrum.plan.operations import RopeStyle
from ferrum.runtimes.exact_operations import logit_digest, rms_norm_exact, rope_exact, rope_pairs

GENERATOR = np.random.default_rng(0)


def test_rms_norm_of_rows() -> None:
    x = GENERATOR.normal(size=(3, 50)).astype(np.float32)
    weight = GENERATOR.normal(size=50).astype(np.float32)
    exact = x.astype(np.float64)
    expected = exact / np.sqrt((exact**2).mean(-1, keepdims=True) + 1e-5) * weight
    np.testing.assert_allclose(rms_norm_exact(x, weight, 1e-5), expected, rtol=1e-6)


def test_rms_norm_of_heads_is_the_norm_of_each_head() -> None:
    x = GENERATOR.normal(size=(3, 64)).astype(np.float32)
    weight = GENERATOR.normal(size=16).astype(np.float32)
    heads = rms_norm_exact(x.reshape(12, 16), weight, 1e-6).reshape(3, 64)
    assert rms_norm_exact(x, weight, 1e-6, group_width=16).tobytes() == heads.tobytes()


@pytest.mark.parametrize("style", list(RopeStyle))
def test_rope_turns_pairs_and_leaves_the_rest(style: RopeStyle) -> None:
    frequencies = (1.0, 0.25, 0.01)
    positions = np.array([0, 1, 4000], np.int32)
    x = GENERATOR.normal(size=(3, 2 * 8)).astype(np.float32)
    turned = rope_exact(x, positions, 8, style, frequencies).reshape(3, 2, 8)
    heads = x.reshape(3, 2, 8)
    assert (turned[0] == heads[0]).all()
    assert (turned[..., 6:] == heads[..., 6:]).all()
    first, second = rope_pairs(style, 3)
    expected = (heads[..., first].astype(np.float64) + 1j * heads[..., second]) * np.exp(
        1j * positions[:, None, None] * np.array(frequencies)
    )
    np.testing.assert_allclose(turned[..., first], expected.real, atol=1e-6)
    np.testing.assert_allclose(turned[..., second], expected.imag, atol=1e-6)


def test_pairs_of_the_two_rope_styles() -> None:
    assert [indices.tolist() for indices in rope_pairs(RopeStyle.INTERLEAVED, 3)] == [[0, 2, 4], [1, 3, 5]]
    assert [indices.tolist() for indices in rope_pairs(RopeStyle.HALF, 3)] == [[0, 1, 2], [3, 4, 5]]


def test_digest_follows_the_page_and_sees_every_bit() -> None:
    logits = GENERATOR.normal(size=(2, 40)).astype(np.float32)
    expected = []
    for row in logits:
        h = 0xCBF29CE484222325
        for bits in row.view(np.uint32).tolist():
            h = (h ^ bits) * 0x100000001B3 % 2**64
            h ^= h >> 29
        expected.append(h)
    assert logit_digest(logits).tolist() == expected
    changed = logits.copy()
    changed[1, 3] = np.nextafter(changed[1, 3], np.float32(9))
    assert (logit_digest(changed) != logit_digest(logits)).tolist() == [False, True]
