"""The native log-probabilities beside the page's arithmetic in NumPy, and beside float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrum import _native
from ferrum.core.arrays import FloatArray
from ferrum.core.errors import InternalError
from ferrum.core.logprobs import RowLogprobs
from ferrum.runtimes.exact_log_probabilities import row_logprobs

KERNEL_SETS = _native.kernel_sets()

rows = st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 3000), st.sampled_from([0.0, 0.1, 3.0, 60.0])).map(
    lambda drawn: np.random.default_rng(drawn[0]).normal(0, drawn[2], drawn[1]).astype(np.float32)
)
tied_rows = st.lists(st.sampled_from([0.0, 1.0, 2.0, -50.0]), min_size=1, max_size=80).map(
    lambda values: np.array(values, np.float32)
)


def native_logprobs(kernel_set: str, logits: FloatArray, token_id: int, num_top: int) -> RowLogprobs | None:
    value, rank = np.zeros(1, np.float32), np.zeros(1, np.int32)
    top_ids, top_values = np.zeros(num_top, np.int32), np.zeros(num_top, np.float32)
    is_finite = _native.kernels.log_probabilities(
        kernel_set, logits, token_id, value, rank, top_ids, top_values
    )
    if not is_finite:
        return None
    return RowLogprobs(float(value[0]), int(rank[0]), tuple(top_ids.tolist()), tuple(top_values.tolist()))


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
@settings(deadline=None, max_examples=120)
@given(logits=rows | tied_rows, place=st.floats(0, 1), num_top=st.integers(0, 20))
def test_every_kernel_set_has_the_bits_of_the_page(
    kernel_set: str, logits: FloatArray, place: float, num_top: int
) -> None:
    token_id = min(int(place * len(logits)), len(logits) - 1)
    num_top = min(num_top, len(logits))
    assert native_logprobs(kernel_set, logits, token_id, num_top) == row_logprobs(logits, token_id, num_top)


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
def test_a_large_vocabulary_has_the_bits_of_the_page(kernel_set: str) -> None:
    logits = np.random.default_rng(5).normal(0, 2, 262_144).astype(np.float32)
    for token_id in (0, 131_071, 262_143):
        assert native_logprobs(kernel_set, logits, token_id, 20) == row_logprobs(logits, token_id, 20)


@settings(deadline=None, max_examples=100)
@given(logits=rows)
def test_the_page_is_log_softmax_to_a_millionth(logits: FloatArray) -> None:
    wide = logits.astype(np.float64)
    exact = wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())
    found = [row_logprobs(logits, token_id, 0).logprob for token_id in range(0, len(logits), 97)]
    np.testing.assert_allclose(found, exact[::97], rtol=1e-6, atol=2e-6)


def test_the_probabilities_of_all_tokens_add_up_to_one() -> None:
    logits = np.random.default_rng(6).normal(0, 3, 500).astype(np.float32)
    total = sum(np.exp(row_logprobs(logits, token_id, 0).logprob) for token_id in range(500))
    assert total == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
def test_ties_go_to_the_lower_id_in_rank_and_in_the_list(kernel_set: str) -> None:
    logits = np.array([1.0, 3.0, 2.0, 3.0, 3.0, 1.0], np.float32)
    ranks = [native_logprobs(kernel_set, logits, token_id, 0) for token_id in range(6)]
    assert [found.rank for found in ranks if found] == [5, 1, 4, 2, 3, 6]
    found = native_logprobs(kernel_set, logits, 0, 5)
    assert found is not None
    assert found.top_ids == (1, 3, 4, 2, 0)


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
def test_a_certain_token_has_log_probability_zero(kernel_set: str) -> None:
    logits = np.full(40, -3e38, np.float32)
    logits[7] = 3e38
    found = native_logprobs(kernel_set, logits, 7, 2)
    assert found is not None
    assert (found.logprob, found.rank, found.top_ids) == (0.0, 1, (7, 0))
    assert found.top_logprobs[1] == -np.inf


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 15, 16, 98])
def test_logits_that_are_no_numbers_have_no_log_probabilities(
    kernel_set: str, bad: float, place: int
) -> None:
    logits = np.zeros(99, np.float32)
    logits[place] = bad
    assert native_logprobs(kernel_set, logits, 3, 2) is None
    with pytest.raises(InternalError, match="not finite"):
        row_logprobs(logits, 3, 2)
