"""Tokens that are the only ones in their places."""

import numpy as np
import pytest

from ferrum.core.token_gate import StillGate, forced_tokens, full_mask, only_token


@pytest.mark.parametrize("token_id", [0, 1, 31, 32, 63, 64, 999])
def test_the_only_token_of_a_mask_is_found(token_id: int) -> None:
    mask = np.zeros(32, np.uint32)
    mask[token_id // 32] = 1 << token_id % 32
    assert only_token(mask) == token_id
    for other in (0, 5, 31, 500):
        if other != token_id:
            both = mask.copy()
            both[other // 32] |= np.uint32(1 << other % 32)
            assert only_token(both) is None


def test_nothing_is_forced_where_there_is_a_choice_or_none() -> None:
    assert only_token(None) is None
    assert only_token(full_mask(100)) is None
    assert only_token(np.zeros(4, np.uint32)) is None
    assert forced_tokens(None, 5) == forced_tokens(StillGate(), 5) == []


def test_no_more_tokens_are_forced_than_asked_for() -> None:
    mask = np.array([0, 4], np.uint32)
    assert forced_tokens(StillGate(mask), 3) == [34, 34, 34]
    assert forced_tokens(StillGate(mask), 0) == []
