from __future__ import annotations

import pytest
from prefix_shelf import Shelf

from ferrum.cache.block_pool import BlockPool
from ferrum.cache.cache_manager import CacheManager
from ferrum.cache.prefix_scope import PrefixScope
from ferrum.core.cache_use import CacheEnd, CacheExplanation
from ferrum.core.ledger import LifecycleLedger

CACHED = list(range(100, 110))  # two blocks and a half
EVERYBODY = PrefixScope()


@pytest.fixture
def shelf() -> Shelf:
    shelf = Shelf()
    shelf.answer("a", CACHED)
    return shelf


def explained(shelf: Shelf, tokens: list[int], scope: PrefixScope = EVERYBODY) -> CacheExplanation:
    return shelf.cache.explain_prefix(scope, tokens)


@pytest.mark.parametrize("position", range(10))
def test_the_first_differing_token_is_named(shelf: Shelf, position: int) -> None:
    tokens = [*CACHED[:position], 7, 8, 9]
    assert explained(shelf, tokens) == CacheExplanation(
        CacheEnd.DIFFERENT_TOKEN, len(tokens), position, position, 7, CACHED[position]
    )


def test_a_prompt_that_goes_on_where_the_cached_one_ends(shelf: Shelf) -> None:
    tokens = [*CACHED, 7, 8]
    assert explained(shelf, tokens) == CacheExplanation(CacheEnd.NOTHING_LONGER, 12, 10, 10, 7)


@pytest.mark.parametrize("length", [1, 4, 5, 8, 10])
def test_a_prompt_that_is_all_there(shelf: Shelf, length: int) -> None:
    last = length - 1
    expected = CacheExplanation(CacheEnd.COMPLETE, length, last, last, CACHED[last])
    assert explained(shelf, CACHED[:length]) == expected


def test_another_salt_has_nothing_and_tells_nothing(shelf: Shelf) -> None:
    explanation = explained(shelf, CACHED, PrefixScope(salt="mine"))
    assert explanation == CacheExplanation(CacheEnd.NOTHING_CACHED, 10, 0, 0, 100)


def test_what_was_forgotten_is_missing_from_the_end() -> None:
    shelf = Shelf(num_blocks=3)
    shelf.answer("a", CACHED)
    shelf.answer("b", [1, 2])
    assert explained(shelf, CACHED) == CacheExplanation(CacheEnd.NOTHING_LONGER, 10, 8, 8, 108)


def test_the_nearest_of_very_many_is_found() -> None:
    shelf = Shelf(num_blocks=200)
    for number in range(100):
        shelf.answer(f"r{number}", [5, 6, number + 10, number])
    explanation = explained(shelf, [5, 6, 10, 7, 7, 7])
    assert (explanation.position, explanation.cached_token_id) == (3, 0)
    assert explanation.cached_tokens == 2


def test_without_a_prefix_cache_that_is_the_reason() -> None:
    cache = CacheManager(BlockPool(4, LifecycleLedger()), 4)
    assert cache.explain_prefix(EVERYBODY, [1, 2]).end is CacheEnd.DISABLED
