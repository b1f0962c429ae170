"""What each rule of docs/sampling.md computes, on rows small enough to compute by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ferrum.core.arrays import FloatArray
from ferrum.core.errors import InternalError
from ferrum.core.sampling_params import SamplingParams
from ferrum.core.step import SamplingInstruction
from ferrum.core.token_rules import RuleSettings, TokenRules
from ferrum.sampling.logit_rules import adjust_logits, cut_below_sigma, repetition_lengths
from ferrum.sampling.reference_sampler import choose, choose_with_state
from ferrum.sampling.request_rules import begin_rules
from ferrum.sampling.token_weights import dynamic_temperature
from ferrum.testing.byte_tokenizer import ByteTokenizer

PLAIN = SamplingInstruction(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=7, position=0)
PROBABILITIES = np.array([0.4, 0.3, 0.15, 0.1, 0.05])
LOGITS = np.log(PROBABILITIES).astype(np.float32)
NUM_DRAWS = 2000


def rules_after(sampling: SamplingParams, prompt: bytes, answer: bytes = b"") -> TokenRules:
    history = begin_rules(sampling, list(prompt), ByteTokenizer(), 258)
    assert history is not None
    for token_id in answer:
        history.take(token_id)
    return history.rules()


def adjusted(sampling: SamplingParams, prompt: bytes, answer: bytes = b"") -> FloatArray:
    """Of a row in which even tokens have the logit 2 and odd ones −2."""
    logits = np.where(np.arange(258) % 2 == 0, 2.0, -2.0).astype(np.float32)
    return adjust_logits(logits, rules_after(sampling, prompt, answer)) - logits


def changes(difference: FloatArray) -> dict[str, float]:
    return {chr(i): round(float(difference[i]), 4) for i in np.flatnonzero(difference).tolist()}


def drawn(settings: RuleSettings, logits: FloatArray = LOGITS, **columns: float) -> Counter[int]:
    instruction = replace(PLAIN, rules=TokenRules(settings), **columns)
    return Counter(choose(logits, replace(instruction, position=position)) for position in range(NUM_DRAWS))


def assert_drawn_like(counts: Counter[int], expected: dict[int, float]) -> None:
    """Pearson's chi-square, at one in ten thousand; never a token that has no share."""
    total = sum(expected.values())
    assert set(counts) <= set(expected)
    num_draws = sum(counts.values())
    shares = {token_id: num_draws * share / total for token_id, share in expected.items()}
    statistic = sum((counts[token_id] - share) ** 2 / share for token_id, share in shares.items())
    critical = {1: 15.1, 2: 18.4, 3: 21.1, 4: 23.5}
    if len(expected) > 1:
        assert statistic < critical[len(expected) - 1]


def test_the_repetition_penalty_is_for_tokens_of_prompt_and_answer_once_each() -> None:
    # 98 is even: 2 / 1.25 = 1.6; 97 and 99 are odd: −2 · 1.25 = −2.5.
    penalty = SamplingParams(repetition_penalty=1.25)
    assert changes(adjusted(penalty, b"bbba", b"ccc")) == {"b": -0.4, "a": -0.5, "c": -0.5}


def test_presence_and_frequency_are_for_tokens_of_the_answer_alone() -> None:
    presence, frequency = SamplingParams(presence_penalty=0.5), SamplingParams(frequency_penalty=0.25)
    assert changes(adjusted(presence, b"aaa", b"bccc")) == {"b": -0.5, "c": -0.5}
    assert changes(adjusted(frequency, b"aaa", b"bccc")) == {"b": -0.25, "c": -0.75}
    assert changes(adjusted(presence, b"Paris Paris Paris")) == {}


def test_negative_penalties_reward() -> None:
    assert changes(adjusted(SamplingParams(presence_penalty=-1.0), b"", b"a")) == {"a": 1.0}
    assert changes(adjusted(SamplingParams(repetition_penalty=0.5), b"b")) == {"b": 2.0}


def test_the_window_of_the_penalties_is_the_end_of_the_history() -> None:
    window = SamplingParams(repetition_penalty=1.25, repeat_last_n=64)
    assert "!" not in changes(adjusted(window, b"!" * 10 + b"a" * 190))
    assert "!" in changes(adjusted(window, b"a" * 190 + b"!" * 10))
    assert "!" in changes(adjusted(replace(window, repeat_last_n=1000), b"!" + b"a" * 190))


def test_biases_are_added_and_penalties_see_them() -> None:
    assert changes(adjusted(SamplingParams(logit_bias={97: 3, 98: -100}), b"")) == {"a": 3.0, "b": -100.0}
    both = SamplingParams(logit_bias={97: 3}, repetition_penalty=2.0)
    assert changes(adjusted(both, b"a")) == {"a": 2.5}  # (−2 + 3) / 2 = 0.5


def test_a_bias_forces_and_removes_a_token() -> None:
    for bias, expected in [({4: 100.0}, {4}), ({0: -100.0}, {1})]:
        rules = rules_after(SamplingParams(logit_bias=bias), b"")
        assert {choose(LOGITS, replace(PLAIN, temperature=0.0, rules=rules))} == expected


def test_repetitions_are_measured_from_the_end() -> None:
    tokens = np.array(list(b"abcXabcYabc"), np.int32)
    # The Z function of the reversed text: 3 tokens agree with those before the 4th and 8th last one.
    assert repetition_lengths(tokens).tolist() == [0, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0]


def test_dry_grows_with_the_repetition_that_a_token_would_go_on_with() -> None:
    dry = SamplingParams(dry_multiplier=0.5, dry_base=2.0, dry_allowed_length=2, dry_sequence_breakers=())
    # "abc" stood before X and before Y: 0.5 · 2^(3 − 2).
    assert changes(adjusted(dry, b"abcXabcYabc")) == {"X": -1.0, "Y": -1.0}
    # "bc" before Z is shorter than "abc" before X: each for its own longest repetition.
    assert changes(adjusted(dry, b"abcXbcZ-abc")) == {"X": -1.0, "Z": -0.5}
    # X follows "abc", and further back "bc": once, for the longer.
    assert changes(adjusted(dry, b"bcX.abcX-abc")) == {"X": -1.0}
    assert changes(adjusted(dry, b"aXaYa")) == {}  # One token is no repetition.
    assert changes(adjusted(replace(dry, dry_allowed_length=1), b"aXa")) == {"X": -0.5}


def test_dry_looks_at_prompt_and_answer_and_stops_at_breakers() -> None:
    dry = SamplingParams(dry_multiplier=0.5, dry_base=2.0, dry_allowed_length=2)
    assert changes(adjusted(dry, b"abcX", b"abc")) == {"X": -1.0}
    assert changes(adjusted(dry, b"a:bcX", b"a:bc")) == {"X": -0.5}  # only "bc" after the colon
    assert changes(adjusted(dry, b"abc\nX", b"abc\n")) == {}
    assert changes(adjusted(replace(dry, dry_penalty_last_n=4), b"abcX", b"abc")) == {}


def test_dry_stays_finite_however_long_the_repetition() -> None:
    dry = SamplingParams(dry_multiplier=1.0, dry_base=100.0)
    assert adjusted(dry, b"ab" * 200)[ord("a")] == pytest.approx(-1e30)


def test_top_n_sigma_keeps_logits_near_the_highest() -> None:
    logits = np.array([10.0, 9.0, 0.0, 0.0, 0.0, 0.0], np.float32)  # mean 3.17, deviation 4.49
    assert np.isfinite(cut_below_sigma(logits, 0.1)).tolist() == [True, *[False] * 5]
    assert np.isfinite(cut_below_sigma(logits, 0.3)).tolist() == [True, True, *[False] * 4]
    assert np.isfinite(cut_below_sigma(logits, 3.0)).all()
    banned = np.append(logits, np.float32(-np.inf))
    assert np.isfinite(cut_below_sigma(banned, 0.3)).tolist() == [True, True, *[False] * 5]


def test_draws_follow_the_probabilities_that_every_limit_leaves() -> None:
    shares = dict(enumerate(PROBABILITIES.tolist()))
    assert_drawn_like(drawn(RuleSettings()), shares)
    assert_drawn_like(drawn(RuleSettings(), top_p=0.8), {i: shares[i] for i in range(3)})
    assert_drawn_like(drawn(RuleSettings(), top_k=2), {i: shares[i] for i in range(2)})
    assert_drawn_like(drawn(RuleSettings(), min_p=0.3), {i: shares[i] for i in range(3)})
    # The entropy is 1.39 nats; surprises 0.92, 1.20, 1.90, 2.30, 3.00: the nearest are 1, then 0, then 2.
    assert_drawn_like(drawn(RuleSettings(typical_p=0.2)), {1: 1.0})
    assert_drawn_like(drawn(RuleSettings(typical_p=0.5)), {i: shares[i] for i in range(2)})
    assert_drawn_like(drawn(RuleSettings(typical_p=0.8)), {i: shares[i] for i in range(3)})


def test_xtc_drops_the_top_choices_but_the_least_of_them_as_often_as_asked() -> None:
    shares = dict(enumerate(PROBABILITIES.tolist()))
    always = drawn(RuleSettings(xtc_probability=1.0, xtc_threshold=0.12))
    assert_drawn_like(always, {i: shares[i] for i in (2, 3, 4)})
    assert_drawn_like(drawn(RuleSettings(xtc_probability=1.0, xtc_threshold=0.35)), shares)  # one alone stays
    half = drawn(RuleSettings(xtc_probability=0.5, xtc_threshold=0.12))
    left = 1 - shares[0] - shares[1]
    mixed = {i: share / 2 + (share / left / 2 if i >= 2 else 0) for i, share in shares.items()}
    assert_drawn_like(half, mixed)


def test_the_dynamic_temperature_lies_between_its_ends() -> None:
    settings = RuleSettings(dynatemp_range=0.5, dynatemp_exponent=1.0)
    one = np.float32(1.0)
    flat, sure = np.zeros(8, np.float32), np.array([0, -50, -50, -50], np.float32)
    assert dynamic_temperature(flat, one, settings) == pytest.approx(1.5)
    assert dynamic_temperature(sure, one, settings) == pytest.approx(0.5)
    entropy = -(PROBABILITIES * np.log(PROBABILITIES)).sum() / np.log(5)
    assert dynamic_temperature(LOGITS, one, settings) == pytest.approx(0.5 + entropy, rel=1e-5)
    squared = replace(settings, dynatemp_exponent=2.0)
    assert dynamic_temperature(LOGITS, one, squared) == pytest.approx(0.5 + entropy**2, rel=1e-5)
    assert dynamic_temperature(sure, np.float32(0.2), settings) == pytest.approx(0.0, abs=1e-5)
    assert dynamic_temperature(LOGITS[:1], one, settings) == 1.0


def test_mirostat_keeps_what_is_at_most_so_surprising() -> None:
    settings = RuleSettings(mirostat_tau=2.0, mirostat_eta=0.1)
    # Surprises in bits: 1.32, 1.74, 2.74, 3.32, 4.32.
    for mu, num_kept in [(-1.0, 1), (1.0, 1), (1.5, 1), (2.0, 2), (3.5, 4), (9.0, 5)]:
        instruction = replace(PLAIN, rules=TokenRules(settings, mirostat_mu=mu))
        chosen = {choose(LOGITS, replace(instruction, position=position)) for position in range(400)}
        assert chosen == set(range(num_kept)), mu


def test_mirostat_moves_its_limit_by_the_surprise_of_the_choice() -> None:
    settings = RuleSettings(mirostat_tau=2.0, mirostat_eta=0.1)
    choice = choose_with_state(LOGITS, replace(PLAIN, rules=TokenRules(settings, mirostat_mu=9.0)))
    surprise = -np.log2(PROBABILITIES[choice.token_id])
    assert choice.mirostat_mu == pytest.approx(9.0 - 0.1 * (surprise - 2.0), rel=1e-6)
    greedy = replace(PLAIN, temperature=0.0, rules=TokenRules(settings, mirostat_mu=9.0))
    assert choose_with_state(LOGITS, greedy).mirostat_mu == 9.0


def test_mirostat_comes_to_the_surprise_it_is_asked_for() -> None:
    rng = np.random.default_rng(2)
    mu, surprises = 2 * 3.0, []
    for position in range(600):
        logits = rng.normal(0, 2.5, 500).astype(np.float32)
        rules = TokenRules(RuleSettings(mirostat_tau=3.0, mirostat_eta=0.1), mirostat_mu=mu)
        choice = choose_with_state(logits, replace(PLAIN, position=position, rules=rules))
        surprises.append(3.0 - (choice.mirostat_mu - mu) / 0.1)
        mu = choice.mirostat_mu
    assert np.mean(surprises[100:]) == pytest.approx(3.0, abs=0.15)


def test_temperature_zero_is_the_likeliest_after_biases_and_penalties_whatever_the_limits() -> None:
    sampling = SamplingParams(logit_bias={3: 1.5}, repetition_penalty=2.0, typical_p=0.1, top_n_sigma=1)
    rules = rules_after(sampling, bytes([0]))
    greedy = replace(PLAIN, temperature=0.0, top_k=1, top_p=0.1, min_p=1.0, rules=rules)
    expected = adjust_logits(
        LOGITS,
        TokenRules(
            rules.settings,
            counted_ids=np.array([0], np.int32),
            window_counts=np.array([1], np.int32),
            output_counts=np.array([0], np.int32),
        ),
    )
    assert choose(LOGITS, greedy) == int(expected.argmax()) == 3
    assert choose(LOGITS, replace(greedy, temperature=1e-30)) == 3


def test_a_row_of_which_nothing_is_left_is_an_error() -> None:
    with pytest.raises(InternalError, match="no token is allowed"):
        choose(LOGITS, replace(PLAIN, mask=np.zeros(1, np.uint32)))
