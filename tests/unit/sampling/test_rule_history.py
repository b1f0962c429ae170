"""What penalties and DRY look back on, kept token by token, against counting all over again."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrum.core.errors import InvalidRequest
from ferrum.core.sampling_params import SamplingParams
from ferrum.core.token_rules import TokenRules
from ferrum.sampling.request_rules import begin_rules
from ferrum.sampling.rule_history import RuleHistory
from ferrum.testing.byte_tokenizer import ByteTokenizer

PENALTIES = SamplingParams(repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=0.25)

token_lists = st.lists(st.sampled_from(list(b"abcd\n:")), max_size=40)


def begun(sampling: SamplingParams, prompt: bytes = b"") -> RuleHistory:
    rules = begin_rules(sampling, list(prompt), ByteTokenizer(), 258)
    assert rules is not None
    return rules


def counts_of(rules: TokenRules) -> dict[int, tuple[int, int]]:
    columns = zip(
        rules.counted_ids.tolist(), rules.window_counts.tolist(), rules.output_counts.tolist(), strict=True
    )
    return {token_id: (inside, written) for token_id, inside, written in columns if inside or written}


@given(prompt=token_lists, answer=token_lists, window=st.none() | st.integers(1, 60))
def test_counts_are_those_of_the_last_tokens_of_prompt_and_answer(
    prompt: list[int], answer: list[int], window: int | None
) -> None:
    sampling = SamplingParams(repetition_penalty=1.5, repeat_last_n=window)
    history = begun(sampling, bytes(prompt))
    for done in range(len(answer) + 1):
        start = 0 if window is None else max(0, len(prompt) + done - window)
        inside = [(token_id, False) for token_id in prompt] + [(token_id, True) for token_id in answer[:done]]
        everywhere = Counter(token_id for token_id, _ in inside[start:])
        written = Counter(token_id for token_id, was_written in inside[start:] if was_written)
        expected = {token_id: (count, written[token_id]) for token_id, count in everywhere.items()}
        assert counts_of(history.rules()) == expected
        if done < len(answer):
            history.take(answer[done])


@given(prompt=token_lists, answer=token_lists, breakers=st.sampled_from([(), ("\n",), ("a:", "bc", "d")]))
def test_a_repetition_reaches_back_to_the_token_that_completed_a_breaker(
    prompt: list[int], answer: list[int], breakers: tuple[str, ...]
) -> None:
    sampling = SamplingParams(dry_multiplier=0.8, dry_sequence_breakers=breakers)
    history = begun(sampling, bytes(prompt))
    for done in range(len(answer) + 1):
        text = bytes(prompt + answer[:done])
        # A token is a byte here, so the tokens after a breaker are the bytes after its last occurrence.
        ends = [text.rfind(each.encode()) + len(each) for each in breakers if each.encode() in text]
        rules = history.rules()
        assert rules.dry_limit == len(text) - max(ends, default=0)
        assert rules.dry_tokens.tolist() == list(text)
        if done < len(answer):
            history.take(answer[done])


def test_a_breaker_within_a_longer_token_breaks() -> None:
    class Syllables(ByteTokenizer):
        def token_bytes(self, token_id: int) -> bytes:
            return (b"so", b"me", b".\n", b"x", b"\nl")[token_id]

    sampling = SamplingParams(dry_multiplier=1.0, dry_sequence_breakers=("e.", "\n"))
    for prompt, limit in [((0, 1, 0), 3), ((0, 1, 2), 0), ((0, 2, 0, 3), 2), ((3, 4, 3), 1), ((1, 2, 0), 1)]:
        history = begin_rules(sampling, prompt, Syllables(), 5)
        assert history is not None
        assert history.rules().dry_limit == limit


def test_dry_reads_no_more_than_its_window() -> None:
    history = begun(SamplingParams(dry_multiplier=1.0, dry_penalty_last_n=3), b"abcde")
    assert bytes(history.rules().dry_tokens.tolist()) == b"cde"
    history.take(ord("f"))
    assert bytes(history.rules().dry_tokens.tolist()) == b"def"


@given(prompt=token_lists, drafts=token_lists, window=st.none() | st.integers(1, 20))
def test_looking_ahead_sees_what_would_be_there_and_changes_nothing(
    prompt: list[int], drafts: list[int], window: int | None
) -> None:
    sampling = SamplingParams(
        presence_penalty=1.0, repeat_last_n=window, dry_multiplier=1.0, dry_penalty_last_n=window
    )
    history, real = begun(sampling, bytes(prompt)), begun(sampling, bytes(prompt))
    before = _state(history)
    ahead = history.after(tuple(drafts))
    for token_id in drafts:
        real.take(token_id)
    assert _state(ahead) == _state(real)
    assert _state(history) == before


def _state(history: RuleHistory) -> tuple[object, ...]:
    rules = history.rules()
    return counts_of(rules), rules.dry_tokens.tolist(), rules.dry_limit, rules.mirostat_mu


def test_mirostat_begins_at_twice_the_target_and_goes_on_from_what_it_is_told() -> None:
    history = begun(SamplingParams(mirostat=2, mirostat_tau=3.0))
    assert history.rules().mirostat_mu == 6.0
    history.take(5, mirostat_mu=4.25)
    assert history.rules().mirostat_mu == 4.25
    assert history.copy().rules().mirostat_mu == 4.25


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(),
        SamplingParams(temperature=0.3, top_k=5, top_p=0.4, min_p=0.1),
        SamplingParams(repetition_penalty=2.0, presence_penalty=1.0, repeat_last_n=0),
        SamplingParams(dry_multiplier=1.0, dry_penalty_last_n=0),
        SamplingParams(temperature=0, typical_p=0.5, top_n_sigma=1, xtc_probability=1, mirostat=2),
        SamplingParams(temperature=0, dynatemp_range=1.0),
        SamplingParams(xtc_threshold=0.5, dry_base=3.0, mirostat_tau=2.0, dynatemp_exponent=2.0),
    ],
)
def test_what_has_no_effect_makes_no_rules(sampling: SamplingParams) -> None:
    assert begin_rules(sampling, [1, 2], ByteTokenizer(), 258) is None


def test_a_bias_on_a_token_outside_the_vocabulary_is_refused() -> None:
    begin_rules(SamplingParams(logit_bias={257: 1}), [], ByteTokenizer(), 258)
    with pytest.raises(InvalidRequest, match="258 is outside the vocabulary") as refusal:
        begin_rules(SamplingParams(logit_bias={258: 1}), [], ByteTokenizer(), 258)
    assert refusal.value.param == "logit_bias"


def test_biases_of_nothing_are_left_out() -> None:
    rules = begun(SamplingParams(logit_bias={3: -1.5, 5: 0})).rules()
    assert rules.settings.biased_ids.tolist() == [3]
    assert rules.settings.biases.dtype == np.float32
