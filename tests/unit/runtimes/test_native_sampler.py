"""The native sampler against the reference in NumPy: equal tokens and states, on every kernel set."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrum import _native
from ferrum.core.arrays import FloatArray, Int32Array
from ferrum.core.step import SamplingInstruction
from ferrum.core.token_gate import full_mask, without_tokens
from ferrum.core.token_rules import RuleSettings, TokenMask, TokenRules
from ferrum.execution.sampling_columns import build_sampling_batch
from ferrum.sampling.reference_sampler import Choice, allowed_tokens, choose, choose_with_state

KERNEL_SETS = _native.kernel_sets()
VOCABULARY = 700
CONTEXT = 512

seeds = st.integers(0, 2**64 - 1)
logits_rows = st.integers(0, 2**32 - 1).map(
    lambda seed: np.random.default_rng(seed).normal(0, 3, VOCABULARY).astype(np.float32)
)
tied_rows = st.lists(st.sampled_from([0.0, 1.0, 2.0, -50.0]), min_size=1, max_size=80).map(
    lambda values: np.array(values, np.float32)
)


def _mask(seed: int, share: float) -> TokenMask:
    bits = np.random.default_rng(seed).random(32 * 22) < share
    return np.packbits(bits, bitorder="little").view(np.uint32)


def _prefix_mask(num_tokens: int) -> TokenMask:
    """As for a model whose output layer is wider than the vocabulary."""
    return np.packbits(np.arange(32 * 22) < num_tokens, bitorder="little").view(np.uint32)


masks = st.builds(_mask, st.integers(0, 2**32 - 1), st.sampled_from([0.002, 0.3, 0.99])) | st.builds(
    _prefix_mask, st.integers(0, 32 * 22)
)


@cache
def native_sampler(kernel_set: str, vocabulary: int) -> _native.kernels.Sampler:
    return _native.kernels.Sampler(kernel_set, 1, 4, vocabulary, CONTEXT)


def native_choice(kernel_set: str, logits: FloatArray, instruction: SamplingInstruction) -> Choice:
    sampler = native_sampler(kernel_set, len(logits))
    sampler.load(logits[None])
    tokens, mirostat_mu = np.zeros(1, np.int32), np.zeros(1)
    sampler.choose(build_sampling_batch([instruction]), tokens, mirostat_mu)
    return Choice(int(tokens[0]), float(mirostat_mu[0]))


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
@settings(deadline=None, max_examples=150)
@given(
    logits=logits_rows | tied_rows,
    temperature=st.sampled_from([0.0, 1e-30, 1e-3, 0.3, 1.0, 1.7, 100.0]),
    top_k=st.sampled_from([0, 1, 2, 17, 300, 10_000]),
    top_p=st.sampled_from([1.0, 0.99, 0.9, 0.5, 1e-6]),
    min_p=st.sampled_from([0.0, 0.02, 0.5, 1.0]),
    seed=seeds,
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
    instruction = SamplingInstruction(temperature, top_k, top_p, min_p, seed, position)
    assert native_choice(kernel_set, logits, instruction).token_id == choose(logits, instruction)


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
@settings(deadline=None, max_examples=100)
@given(
    logits=logits_rows,
    mask=masks,
    temperature=st.sampled_from([0.0, 0.3, 1.7]),
    top_k=st.sampled_from([0, 17]),
    top_p=st.sampled_from([1.0, 0.9]),
    seed=seeds,
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
    alone = SamplingInstruction(temperature, top_k, top_p, 0.02, seed, 5)
    masked = replace(alone, mask=mask)
    chosen = native_choice(kernel_set, logits, masked).token_id
    allowed = np.flatnonzero(allowed_tokens(mask, len(logits)))
    if len(allowed) == 0:
        assert chosen == -2
        return
    assert chosen == choose(logits, masked)
    # The same tokens alone in a vocabulary of their own are chosen alike.
    assert chosen == allowed[choose(logits[allowed], alone)]


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
def test_bits_of_a_mask_beyond_the_vocabulary_allow_nothing(kernel_set: str) -> None:
    mask = np.array([0, 0, 0, 0xFFFFFFF8], np.uint32)
    instruction = SamplingInstruction(1.0, 0, 1.0, 0.0, 1, 1, mask=mask)
    assert native_choice(kernel_set, np.zeros(99, np.float32), instruction).token_id == -2


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
@pytest.mark.parametrize("num_allowed", [1, 31, 32, 33, 640, 699])
def test_a_row_with_no_number_beyond_the_allowed_tokens_is_refused_all_the_same(
    kernel_set: str, num_allowed: int
) -> None:
    logits = np.zeros(VOCABULARY, np.float32)
    instruction = SamplingInstruction(1.0, 0, 1.0, 0.0, 1, 1, mask=_prefix_mask(num_allowed))
    assert 0 <= native_choice(kernel_set, logits, instruction).token_id < num_allowed
    logits[-1] = np.nan
    assert native_choice(kernel_set, logits, instruction).token_id == -1


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
@pytest.mark.parametrize("place", [0, 16, 40, 95, 98])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_with_no_number_among_forbidden_tokens_is_refused_all_the_same(
    kernel_set: str, place: int, bad: float
) -> None:
    mask = without_tokens(full_mask(99), range(place % 2, 99, 2))
    instruction = SamplingInstruction(1.0, 0, 1.0, 0.0, 1, 1, mask=mask)
    logits = np.linspace(-1, 1, 99, dtype=np.float32)
    assert native_choice(kernel_set, logits, instruction).token_id % 2 != place % 2
    logits[place] = bad
    assert native_choice(kernel_set, logits, instruction).token_id == -1


def test_a_mask_that_does_not_fit_the_vocabulary_is_refused() -> None:
    instruction = SamplingInstruction(1.0, 0, 1.0, 0.0, 1, 1, mask=np.zeros(3, np.uint32))
    with pytest.raises(ValueError, match="a bit for each word"):
        native_choice("portable", np.zeros(99, np.float32), instruction)


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 15, 16, 98])
@pytest.mark.parametrize(("temperature", "top_k", "top_p"), [(0.0, 0, 1.0), (1.0, 0, 1.0), (1.0, 5, 0.9)])
@pytest.mark.parametrize("rules", [None, TokenRules(RuleSettings(typical_p=0.5))])
def test_no_token_is_chosen_from_logits_that_are_not_numbers(
    kernel_set: str,
    bad: float,
    place: int,
    temperature: float,
    top_k: int,
    top_p: float,
    rules: TokenRules | None,
) -> None:
    logits = np.linspace(-1, 1, 99, dtype=np.float32)
    logits[place] = bad
    instruction = SamplingInstruction(temperature, top_k, top_p, 0.0, 1, 1, rules=rules)
    assert native_choice(kernel_set, logits, instruction).token_id == -1


def history(rng: np.random.Generator, vocabulary: int) -> Int32Array:
    """A text of few words that repeats itself, as texts do."""
    words = rng.integers(0, vocabulary, 6)
    tokens = words[rng.integers(0, 6, 150)]
    tokens[100:130] = tokens[20:50]
    return np.concatenate([tokens, tokens[40 : 40 + rng.integers(0, 40)]]).astype(np.int32)


@st.composite
def token_rules(draw: st.DrawFn, vocabulary: int) -> TokenRules:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    some = rng.choice(vocabulary, min(vocabulary, 20), replace=False).astype(np.int32)
    tokens = history(rng, vocabulary)
    counted, counts = np.unique(tokens, return_counts=True)
    output_counts = np.minimum(counts, rng.integers(0, 40, len(counts)))
    return TokenRules(
        settings=RuleSettings(
            repetition_penalty=draw(st.sampled_from([1.0, 1.3, 0.5])),
            presence_penalty=draw(st.sampled_from([0.0, 0.7, -2.0])),
            frequency_penalty=draw(st.sampled_from([0.0, 0.1, -0.2])),
            dry_multiplier=draw(st.sampled_from([0.0, 0.8])),
            dry_base=draw(st.sampled_from([1.0, 1.75, 100.0])),
            dry_allowed_length=draw(st.sampled_from([1, 2, 5])),
            top_n_sigma=draw(st.sampled_from([0.0, 0.5, 1.0, 3.0])),
            dynatemp_range=draw(st.sampled_from([0.0, 0.5, 3.0])),
            dynatemp_exponent=draw(st.sampled_from([1.0, 0.3, 2.0])),
            typical_p=draw(st.sampled_from([1.0, 0.95, 0.3, 1e-6])),
            xtc_probability=draw(st.sampled_from([0.0, 0.5, 1.0])),
            xtc_threshold=draw(st.sampled_from([0.1, 0.01, 0.0, 0.6])),
            mirostat_tau=draw(st.sampled_from([0.0, 0.5, 5.0])),
            mirostat_eta=draw(st.sampled_from([0.1, 0.9])),
            biased_ids=some[:7],
            biases=rng.choice([-100, -1.5, 3, 100], 7)[: len(some[:7])].astype(np.float32),
        ),
        counted_ids=counted.astype(np.int32),
        window_counts=(counts * rng.integers(0, 2, len(counts))).astype(np.int32),
        output_counts=output_counts.astype(np.int32),
        dry_tokens=tokens,
        dry_limit=draw(st.sampled_from([0, 1, 3, 1000])),
        mirostat_mu=draw(st.sampled_from([10.0, 1.0, -0.5])),
    )


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
@settings(deadline=None, max_examples=250)
@given(
    logits=logits_rows,
    rules=token_rules(VOCABULARY),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.7]),
    top_k=st.sampled_from([0, 0, 40]),
    top_p=st.sampled_from([1.0, 1.0, 0.9]),
    min_p=st.sampled_from([0.0, 0.02]),
    mask=st.none() | masks,
    seed=seeds,
)
def test_every_rule_chooses_the_reference_token_and_comes_to_its_state(
    kernel_set: str,
    logits: FloatArray,
    rules: TokenRules,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    mask: TokenMask | None,
    seed: int,
) -> None:
    instruction = SamplingInstruction(temperature, top_k, top_p, min_p, seed, 200, rules=rules, mask=mask)
    chosen = native_choice(kernel_set, logits, instruction)
    if chosen.token_id == -2:
        assert mask is not None
        assert not allowed_tokens(mask, VOCABULARY).any()
    else:
        assert chosen == choose_with_state(logits, instruction)


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
@settings(deadline=None, max_examples=60)
@given(logits=tied_rows, data=st.data(), seed=seeds)
def test_ties_and_small_vocabularies_are_cut_alike(
    kernel_set: str, logits: FloatArray, data: st.DataObject, seed: int
) -> None:
    rules = data.draw(token_rules(len(logits)))
    instruction = SamplingInstruction(1.0, 0, 1.0, 0.0, seed, 9, rules=rules)
    assert native_choice(kernel_set, logits, instruction) == choose_with_state(logits, instruction)


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
@pytest.mark.parametrize("spread", [0.0, 0.3, 1.0, 4.0])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (0, 0.9), (0, 0.999), (50, 0.95), (20_000, 1.0)])
def test_flat_and_steep_rows_of_a_large_vocabulary_are_cut_alike(
    kernel_set: str, spread: float, top_k: int, top_p: float
) -> None:
    logits = np.random.default_rng(5).normal(0, spread, 50_001).astype(np.float32)
    for seed in range(6):
        instruction = SamplingInstruction(1.0, top_k, top_p, 0.0, seed, 9)
        assert native_choice(kernel_set, logits, instruction).token_id == choose(logits, instruction)


LARGE_ROWS = {
    "one value": np.zeros(50_001, np.float32),
    "two values": np.where(np.arange(50_001) % 3 == 0, 1.0, 0.25).astype(np.float32),
    "steps of an eighth": np.round(np.random.default_rng(6).normal(0, 1, 50_001) * 8).astype(np.float32) / 8,
    "nearly one value": np.random.default_rng(7).normal(0, 1e-6, 50_001).astype(np.float32),
    "flat": np.random.default_rng(8).normal(0, 1, 50_001).astype(np.float32),
    "steep": (-1.5 * np.log(np.random.default_rng(9).permutation(50_001) + 1)).astype(np.float32),
}
LIMITS = {
    "top-p": (1.0, RuleSettings()),
    "typical-p": (1.0, RuleSettings(typical_p=0.9)),
    "narrow typical-p": (1.0, RuleSettings(typical_p=0.01)),
    "typical-p and top-p": (0.7, RuleSettings(typical_p=0.8)),
    "XTC": (1.0, RuleSettings(xtc_probability=1.0, xtc_threshold=0.00002)),
    "top-p and XTC": (0.9, RuleSettings(xtc_probability=1.0, xtc_threshold=0.001)),
    "mirostat": (1.0, RuleSettings(mirostat_tau=5.0)),
    "all": (
        0.8,
        RuleSettings(typical_p=0.9, xtc_probability=1.0, xtc_threshold=0.00002, mirostat_tau=5.0),
    ),
}


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
@pytest.mark.parametrize("row", LARGE_ROWS)
@pytest.mark.parametrize("limit", LIMITS)
def test_large_rows_of_few_and_of_many_weights_are_limited_alike(
    kernel_set: str, row: str, limit: str
) -> None:
    top_p, settings_of_limit = LIMITS[limit]
    rules = TokenRules(settings_of_limit, mirostat_mu=14.0)
    for seed in range(2):
        instruction = SamplingInstruction(1.0, 0, top_p, 0.0, seed, 9, rules=rules)
        expected = choose_with_state(LARGE_ROWS[row], instruction)
        assert native_choice(kernel_set, LARGE_ROWS[row], instruction) == expected


@pytest.mark.parametrize("varied", ["position", "seed"])
@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_draws_over_many_words_follow_the_weights(varied: str, top_p: float) -> None:
    """Pearson's chi-square over 50 bins of words, at one in ten thousand (49 degrees of freedom)."""
    rows, num_draws, num_bins = 50, 20_000, 50
    logits = np.random.default_rng(3).normal(0, 1, 5000).astype(np.float32)
    sampler = _native.kernels.Sampler("", 1, rows, len(logits), CONTEXT)
    sampler.load(np.repeat(logits[None], rows, axis=0))
    plain = SamplingInstruction(1.0, 0, top_p, 0.0, seed=11, position=7)
    counts = np.zeros(len(logits))
    tokens, mirostat_mu = np.zeros(rows, np.int32), np.zeros(rows)
    for start in range(0, num_draws, rows):
        batch = [replace(plain, **{varied: 100 + number}) for number in range(start, start + rows)]
        sampler.choose(build_sampling_batch(batch), tokens, mirostat_mu)
        np.add.at(counts, tokens, 1)
    shares = np.exp(logits.astype(np.float64))
    heaviest_first = np.argsort(-shares, kind="stable")
    sums = np.cumsum(shares[heaviest_first]) / shares.sum()
    kept = heaviest_first[: int(np.searchsorted(sums, top_p)) + 1] if top_p < 1 else heaviest_first
    assert counts[kept].sum() == num_draws
    # Bins by weight, and by id: a draw that favours either shows.
    bins = np.array_split(kept, num_bins) if varied == "seed" else np.array_split(np.sort(kept), num_bins)
    expected = np.array([shares[each].sum() for each in bins]) * num_draws / shares[kept].sum()
    statistic = float((((np.array([counts[each].sum() for each in bins]) - expected) ** 2) / expected).sum())
    assert statistic < 94.8


def test_rows_of_one_batch_are_chosen_as_if_each_were_alone() -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 2, (4, VOCABULARY)).astype(np.float32)
    rules = TokenRules(RuleSettings(presence_penalty=2.0, mirostat_tau=3.0), mirostat_mu=6.0)
    plain = SamplingInstruction(0.8, 0, 0.9, 0.0, 3, 1)
    nothing = replace(plain, mask=np.zeros(22, np.uint32))
    batch = [plain, replace(plain, rules=rules), nothing, replace(plain, top_k=5)]
    logits[3, 17] = np.nan
    sampler = _native.kernels.Sampler("", 2, 4, VOCABULARY, CONTEXT)
    sampler.load(logits)
    tokens, mirostat_mu = np.zeros(4, np.int32), np.zeros(4)
    sampler.choose(build_sampling_batch(batch), tokens, mirostat_mu)
    expected = choose_with_state(logits[1], batch[1])
    assert tokens.tolist() == [choose(logits[0], plain), expected.token_id, -2, -1]
    assert mirostat_mu[1] == expected.mirostat_mu


def test_rules_that_do_not_fit_are_refused() -> None:
    logits = np.zeros(99, np.float32)
    ids = np.array([99], np.int32)
    for rules, problem in [
        (TokenRules(RuleSettings(biased_ids=ids)), "outside the vocabulary"),
        (TokenRules(RuleSettings(), counted_ids=ids - 1), "differ in length"),
        (TokenRules(RuleSettings(), dry_tokens=np.zeros(CONTEXT + 1, np.int32)), "context"),
        (TokenRules(RuleSettings(), dry_tokens=ids.astype(np.int64)), "another type"),
    ]:
        with pytest.raises(ValueError, match=problem):
            native_choice("portable", logits, SamplingInstruction(1.0, 0, 1.0, 0.0, 1, 1, rules=rules))
