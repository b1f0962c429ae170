from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrum.core.arrays import FloatArray
from ferrum.core.philox import uniform
from ferrum.core.step import SamplingInstruction
from ferrum.sampling.reference_sampler import choose

PLAIN = SamplingInstruction(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=7, position=0)
LOGITS = np.log(np.array([0.1, 0.4, 0.3, 0.15, 0.05], dtype=np.float32))


def _drawn(sampling: SamplingInstruction, logits: FloatArray = LOGITS, num_draws: int = 400) -> Counter[int]:
    return Counter(choose(logits, replace(sampling, position=position)) for position in range(num_draws))


def test_temperature_zero_takes_the_highest_logit_and_the_lowest_id_of_equals() -> None:
    logits = np.array([1.0, 3.0, 3.0, -np.float32(2)], dtype=np.float32)
    assert choose(logits, replace(PLAIN, temperature=0.0)) == 1


def test_a_tiny_temperature_is_greedy_and_does_not_overflow() -> None:
    assert _drawn(replace(PLAIN, temperature=1e-30)) == {1: 400}
    assert _drawn(replace(PLAIN, temperature=1e-37), LOGITS * 1000) == {1: 400}
    assert _drawn(replace(PLAIN, temperature=1e-44)) == {1: 400}


def test_top_k_one_is_greedy() -> None:
    assert _drawn(replace(PLAIN, top_k=1)) == {1: 400}


def test_top_k_keeps_the_lower_ids_among_equal_logits() -> None:
    assert set(_drawn(replace(PLAIN, top_k=2), np.zeros(6, dtype=np.float32))) == {0, 1}


def test_top_p_keeps_the_shortest_run_that_reaches_it() -> None:
    assert set(_drawn(replace(PLAIN, top_p=0.69))) == {1, 2}
    assert set(_drawn(replace(PLAIN, top_p=0.71))) == {1, 2, 3}
    assert set(_drawn(replace(PLAIN, top_p=1e-9))) == {1}


def test_min_p_is_a_share_of_the_most_likely_token() -> None:
    assert set(_drawn(replace(PLAIN, min_p=0.3))) == {1, 2, 3}
    assert set(_drawn(replace(PLAIN, min_p=1.0))) == {1}


def test_top_p_measures_what_top_k_and_min_p_left() -> None:
    # Left are 0.4 and 0.3, so 0.4 has a share of 0.571.
    assert set(_drawn(replace(PLAIN, top_k=2, top_p=0.57))) == {1}
    assert set(_drawn(replace(PLAIN, top_k=2, top_p=0.58))) == {1, 2}


def test_draws_follow_the_probabilities() -> None:
    counts = _drawn(PLAIN, num_draws=4000)
    for token_id, probability in enumerate([0.1, 0.4, 0.3, 0.15, 0.05]):
        deviation = (4000 * probability * (1 - probability)) ** 0.5
        assert abs(counts[token_id] - 4000 * probability) < 5 * deviation


def test_temperature_flattens() -> None:
    cold, hot = _drawn(replace(PLAIN, temperature=0.3)), _drawn(replace(PLAIN, temperature=5.0))
    assert cold[1] > 1.5 * hot[1]


def test_without_truncation_the_draw_walks_the_vocabulary_in_order() -> None:
    logits = np.zeros(1000, dtype=np.float32)
    assert choose(logits, PLAIN) == int(uniform(7, 0) * 1000)


@given(
    st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=60),
    st.floats(0.05, 10),
    st.integers(0, 70),
    st.floats(0.01, 1),
    st.floats(0, 1),
    st.integers(0, 2**64 - 1),
)
def test_the_choice_is_one_of_the_tokens_that_every_limit_leaves(
    values: list[float], temperature: float, top_k: int, top_p: float, min_p: float, seed: int
) -> None:
    logits = np.array(values, dtype=np.float32)
    sampling = SamplingInstruction(temperature, top_k, top_p, min_p, seed, position=3)
    chosen = choose(logits, sampling)
    assert choose(logits, sampling) == chosen
    rank = int((logits > logits[chosen]).sum())
    assert top_k == 0 or rank < top_k
    share = np.exp((float(logits[chosen]) - float(logits.max())) / temperature)
    assert share >= min_p * (1 - 1e-5)


@pytest.mark.parametrize("seed", [0, 1, 2**63, 2**64 - 1])
def test_every_seed_gives_its_own_repeatable_tokens(seed: int) -> None:
    logits = np.zeros(50_000, dtype=np.float32)
    first = choose(logits, replace(PLAIN, seed=seed))
    assert choose(logits, replace(PLAIN, seed=seed)) == first
    assert choose(logits, replace(PLAIN, seed=seed ^ 5)) != first
