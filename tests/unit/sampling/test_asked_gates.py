"""Allowed tokens, bad words and least lengths as masks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrum.core.errors import InvalidRequest
from ferrum.core.sampling_params import SamplingParams
from ferrum.core.token_gate import TokenGate, join_gates
from ferrum.sampling.reference_sampler import allowed_tokens
from ferrum.sampling.request_rules import asked_gates
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.tokenization.stop_rules import StopRules

STOPS = StopRules(end_ids=frozenset({256}), stop_ids={7: 7})


def gate_of(sampling: SamplingParams) -> TokenGate | None:
    return join_gates(asked_gates(sampling, STOPS, ByteTokenizer(), 258))


def forbidden(gate: TokenGate | None) -> set[int]:
    if gate is None or gate.mask is None:
        return set()
    return set(np.flatnonzero(~allowed_tokens(gate.mask, 258)).tolist())


def test_nothing_asked_for_makes_no_gate() -> None:
    assert gate_of(SamplingParams()) is None


@given(st.sets(st.integers(0, 257), min_size=1))
def test_only_allowed_tokens_are_allowed(ids: set[int]) -> None:
    gate = gate_of(SamplingParams(allowed_token_ids=tuple(ids)))
    assert forbidden(gate) == set(range(258)) - ids


def test_allowed_tokens_outside_the_vocabulary_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="258 is outside the vocabulary") as refusal:
        gate_of(SamplingParams(allowed_token_ids=(1, 258)))
    assert refusal.value.param == "allowed_token_ids"


def test_no_end_comes_before_the_least_length() -> None:
    gate = gate_of(SamplingParams(min_tokens=2))
    assert gate is not None
    assert forbidden(gate) == {7, 256}
    gate = gate.after(1)
    assert forbidden(gate) == {7, 256}
    gate = gate.after(1)
    assert forbidden(gate) == set()
    assert forbidden(gate.after(1)) == set()


@given(
    words=st.lists(st.text("abc ", min_size=1, max_size=4), min_size=1, max_size=4),
    answer=st.lists(st.sampled_from(list(b"abc ")), max_size=12),
)
def test_exactly_the_token_that_would_complete_a_bad_word_is_forbidden(
    words: list[str], answer: list[int]
) -> None:
    gate = gate_of(SamplingParams(bad_words=tuple(words)))
    written = b""
    spelled = [*words, *(" " + word.lstrip() for word in words)]
    for token_id in [*answer, None]:
        expected = {
            byte
            for byte in range(256)
            if any((written + bytes([byte])).endswith(word.encode()) for word in spelled)
        }
        assert forbidden(gate) == expected
        if token_id is not None:
            assert gate is not None
            gate, written = gate.after(token_id), written + bytes([token_id])


def test_looking_ahead_does_not_move_a_gate() -> None:
    gate = gate_of(SamplingParams(bad_words=("ab",), min_tokens=1))
    assert gate is not None
    before = forbidden(gate)
    assert ord("b") in forbidden(gate.after(ord("a")))
    assert forbidden(gate) == before
