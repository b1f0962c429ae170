"""Masks and gates: what may come where in an answer."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrum.core.errors import FerrumError, ForbiddenToken, MalformedAnswer
from ferrum.core.token_gate import (
    FirstTokenGate,
    StillGate,
    TokenGate,
    full_mask,
    is_allowed,
    join_gates,
    pass_through,
    without_tokens,
)
from ferrum.core.token_rules import TokenMask


def allowed(mask: TokenMask | None, vocabulary_size: int) -> set[int]:
    return {token_id for token_id in range(vocabulary_size + 40) if is_allowed(mask, token_id)}


@given(vocabulary_size=st.integers(1, 100), data=st.data())
def test_a_mask_has_exactly_the_tokens_that_are_left(vocabulary_size: int, data: st.DataObject) -> None:
    banned = data.draw(st.sets(st.integers(0, vocabulary_size - 1)))
    mask = full_mask(vocabulary_size)
    assert allowed(mask, vocabulary_size) == set(range(vocabulary_size))
    assert allowed(without_tokens(mask, sorted(banned)), vocabulary_size) == (
        set(range(vocabulary_size)) - banned
    )
    assert allowed(mask, vocabulary_size) == set(range(vocabulary_size))


def test_no_mask_allows_every_token_and_negative_ids_are_none() -> None:
    assert is_allowed(None, 10**9)
    assert not is_allowed(full_mask(8), -1)


@dataclass(frozen=True)
class EvenThenOdd:
    """Even tokens after an even number of tokens, odd ones otherwise; 7 ends all."""

    num_tokens: int = 0
    error: FerrumError | None = None

    @property
    def mask(self) -> TokenMask:
        return without_tokens(full_mask(10), range((self.num_tokens + 1) % 2, 10, 2))

    def after(self, token_id: int) -> TokenGate:
        return EvenThenOdd(self.num_tokens + 1, MalformedAnswer("seven") if token_id == 7 else None)


def test_joined_gates_allow_what_all_allow_and_go_on_together() -> None:
    gate = join_gates([EvenThenOdd(), StillGate(without_tokens(full_mask(10), [2, 3])), StillGate()])
    assert gate is not None
    assert allowed(gate.mask, 10) == {0, 4, 6, 8}
    assert allowed(gate.after(4).mask, 10) == {1, 5, 7, 9}
    assert allowed(gate.mask, 10) == {0, 4, 6, 8}


def test_joined_gates_that_stand_still_are_one_gate_for_ever() -> None:
    gate = join_gates([StillGate(), StillGate(full_mask(10))])
    assert gate is not None
    assert gate.after(3) is gate
    assert join_gates([]) is None
    assert join_gates([gate]) is gate


def test_the_first_token_has_a_mask_of_its_own() -> None:
    gate = FirstTokenGate(without_tokens(full_mask(10), [5]), StillGate())
    assert not is_allowed(gate.mask, 5)
    assert is_allowed(gate.after(1).mask, 5)


def test_a_token_that_is_not_allowed_is_an_error_that_names_it() -> None:
    with pytest.raises(ForbiddenToken, match="token 3 was chosen") as caught:
        pass_through(EvenThenOdd(), 3)
    assert caught.value.token_id == 3


def test_an_error_behind_an_allowed_token_is_raised_when_it_is_taken_and_not_when_it_is_looked_at() -> None:
    gate = join_gates([StillGate(), EvenThenOdd(1)])
    assert gate is not None
    assert gate.after(7).error is not None
    with pytest.raises(MalformedAnswer, match="seven"):
        pass_through(gate, 7)
