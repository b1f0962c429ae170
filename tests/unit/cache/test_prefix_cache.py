from __future__ import annotations

import pytest
from prefix_shelf import BLOCK_TOKENS, Shelf

from ferrum.cache.prefix_scope import PrefixScope
from ferrum.core.errors import ResourceExhausted

PROMPT = list(range(100, 112))


def test_a_finished_requests_blocks_are_found_by_the_next() -> None:
    shelf = Shelf()
    assert shelf.answer("a", PROMPT).num_tokens == 0
    match = shelf.answer("b", [*PROMPT, 7, 8])
    assert (match.num_tokens, len(match.blocks)) == (12, 3)


@pytest.mark.parametrize("length", [1, 3, 4, 5, 7, 8, 9, 12])
def test_a_repeated_prompt_computes_its_last_token_only(length: int) -> None:
    shelf = Shelf()
    shelf.answer("a", PROMPT[:length])
    assert shelf.answer("b", PROMPT[:length]).num_tokens == length - 1


@pytest.mark.parametrize("common", range(13))
def test_everything_common_is_found_to_the_token(common: int) -> None:
    shelf = Shelf()
    shelf.answer("a", PROMPT)
    other = [*PROMPT[:common], *range(200, 210)]
    match = shelf.answer("b", other)
    assert match.num_tokens == common
    assert len(match.blocks) == common // BLOCK_TOKENS
    # And the first one's blocks are as they were.
    assert shelf.answer("c", [*PROMPT, 1]).num_tokens == 12


def test_running_requests_share_blocks_and_a_copy_begins_where_they_part() -> None:
    shelf = Shelf()
    shelf.start("a", [*PROMPT, 1, 2])
    shelf.compute("a")
    shelf.start("b", [*PROMPT, 1, 9, 9])
    shelf.compute("b")
    a, b = shelf.cache.block_table("a"), shelf.cache.block_table("b")
    assert a[:3] == b[:3]
    assert a[3] != b[3]
    assert shelf.store.num_copies == 1
    assert shelf.cache.num_used_blocks == 5
    assert (shelf.read("a"), shelf.read("b")) == ([*PROMPT, 1, 2], [*PROMPT, 1, 9, 9])
    assert shelf.ledger.outstanding() == {"a": {"kv_block": 4}, "b": {"kv_block": 4}}
    shelf.end("a")
    assert shelf.read("b") == [*PROMPT, 1, 9, 9]
    shelf.end("b")
    assert shelf.ledger.outstanding() == {}


def test_what_two_computed_at_once_is_kept_once() -> None:
    shelf = Shelf()
    shelf.start("a", [*PROMPT, 1])
    shelf.start("b", [*PROMPT, 2])
    shelf.compute("a")
    assert shelf.cache.num_used_blocks == 4
    shelf.compute("b")
    a, b = shelf.cache.block_table("a"), shelf.cache.block_table("b")
    assert a[:3] == b[:3]
    assert shelf.cache.num_used_blocks == 5
    assert (shelf.read("a"), shelf.read("b")) == ([*PROMPT, 1], [*PROMPT, 2])
    shelf.end("a")
    shelf.end("b")
    assert shelf.cache.num_free_blocks == 16


def test_generated_tokens_are_found_by_the_next_turn() -> None:
    shelf = Shelf()
    shelf.start("turn 1", PROMPT)
    shelf.compute("turn 1")
    shelf.tokens["turn 1"] += range(300, 306)
    shelf.compute("turn 1")
    shelf.end("turn 1")
    assert shelf.answer("turn 2", [*PROMPT, *range(300, 306), 1, 2, 3]).num_tokens == 18


def test_kept_blocks_are_free_room_and_the_least_recent_goes_first() -> None:
    shelf = Shelf(num_blocks=7)
    shelf.answer("a", [1] * 8)
    shelf.answer("b", [2] * 8)
    shelf.answer("c", [3] * 8)
    assert (shelf.cache.num_free_blocks, shelf.cache.status().entries) == (7, 6)
    shelf.answer("a goes on", [*[1] * 8, 5])
    shelf.answer("d", [4] * 4)
    assert shelf.cache.status().evictions == 1
    # Of b the end is gone, the beginning is still there; a was used since.
    assert shelf.cache.find_prefix(PrefixScope(), [2] * 9).num_tokens == 4
    assert shelf.cache.find_prefix(PrefixScope(), [1] * 9).num_tokens == 8


def test_a_full_pool_takes_what_is_kept_but_never_what_is_held() -> None:
    shelf = Shelf(num_blocks=4)
    shelf.start("held", [1] * 8)
    shelf.compute("held")
    shelf.answer("kept", [2] * 8)
    with pytest.raises(ResourceExhausted) as caught:
        shelf.cache.grow("big", 12)
    assert (caught.value.needed, caught.value.available) == (3, 2)
    shelf.cache.grow("big", 8)
    assert shelf.read("held") == [1] * 8
    assert shelf.cache.find_prefix(PrefixScope(), [2] * 9).num_tokens == 0
    shelf.cache.release("big")
    shelf.end("held")


def test_a_branch_that_has_to_go_is_copied_all_the_same() -> None:
    shelf = Shelf(num_blocks=1)
    shelf.answer("a", [1, 2, 3])
    match = shelf.answer("b", [1, 2, 9])
    assert match.num_tokens == 2


@pytest.mark.parametrize(
    "other", [PrefixScope(salt="s"), PrefixScope(adapter="a@1"), PrefixScope(adapter="a@2", salt="s")]
)
def test_scopes_share_nothing(other: PrefixScope) -> None:
    shelf = Shelf()
    shelf.answer("a", PROMPT)
    assert shelf.answer("b", PROMPT, other).num_tokens == 0
    assert shelf.answer("c", PROMPT, other).num_tokens == 11
    assert shelf.answer("d", PROMPT).num_tokens == 11


def test_a_scope_that_was_forgotten_begins_anew() -> None:
    shelf = Shelf(num_blocks=2)
    for number in range(20):
        shelf.answer(f"r{number}", PROMPT[:8], PrefixScope(salt=str(number)))
    assert shelf.cache.status().entries == 2
    assert len(shelf.prefixes._tree._roots) == 1


def test_without_a_prefix_cache_nothing_is_found() -> None:
    from ferrum.cache.block_pool import BlockPool
    from ferrum.cache.cache_manager import CacheManager
    from ferrum.core.ledger import LifecycleLedger

    cache = CacheManager(BlockPool(4, LifecycleLedger()), 4)
    cache.grow("a", 8)
    cache.publish_tail("a", PROMPT, 8)
    cache.release("a")
    assert cache.find_prefix(PrefixScope(), PROMPT).num_tokens == 0
    assert not cache.status().is_enabled


def test_an_end_that_is_known_among_very_many_is_not_entered_twice() -> None:
    shelf = Shelf(num_blocks=100)
    for number in range(60):
        shelf.answer(f"r{number}", [1, number + 10])
    entries = shelf.cache.status().entries
    shelf.answer("again", [1, 10])
    assert shelf.cache.status().entries == entries == 60
