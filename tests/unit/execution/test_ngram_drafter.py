"""Prompt lookup: found where the same tokens stood last, surer the longer they agree, and it learns."""

from __future__ import annotations

import time
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from ferrum.core.drafting import DraftWish
from ferrum.core.step import SamplingInstruction
from ferrum.execution.speculation.ngram_drafter import NgramDrafter
from ferrum.execution.speculation.suffix_index import LONGEST_MATCH, Match, SuffixIndex


def _choice(drafts: tuple[int, ...]) -> SamplingInstruction:
    raise AssertionError("copying asks for no choice")


def _wish(token_ids: Sequence[int], most: int = 8, request_id: str = "a") -> DraftWish:
    return DraftWish(request_id, token_ids, most, _choice)


def _find(token_ids: Sequence[int]) -> Match | None:
    index = SuffixIndex()
    index.extend(token_ids)
    return index.find(token_ids)


def _longest(token_ids: Sequence[int]) -> int:
    """The length of the longest earlier occurrence of the end, as slow as can be."""
    end, best = len(token_ids), 0
    for place in range(1, end):
        length = 0
        while (
            length < min(place, LONGEST_MATCH)
            and token_ids[place - 1 - length] == token_ids[end - 1 - length]
        ):
            length += 1
        best = max(best, length)
    return best


@given(token_ids=st.lists(st.integers(0, 3), max_size=16))
def test_the_longest_of_the_newest_matches_is_found(token_ids: list[int]) -> None:
    longest, match = _longest(token_ids), _find(token_ids)
    if longest < 2:
        assert match is None
    else:
        assert match is not None
        assert match.length == longest
        assert token_ids[match.position - longest : match.position] == token_ids[len(token_ids) - longest :]


@given(token_ids=st.lists(st.integers(0, 2), max_size=40), cut=st.integers(0, 40))
def test_an_index_that_grows_is_that_of_the_whole(token_ids: list[int], cut: int) -> None:
    index = SuffixIndex()
    index.extend(token_ids[:cut])
    index.extend(token_ids)
    assert index.find(token_ids) == _find(token_ids)


def test_of_equally_long_matches_the_newest_counts() -> None:
    assert _find([1, 2, 9, 1, 2, 8, 1, 2]) == Match(5, 2)


def test_what_followed_is_drafted_and_the_answer_is_part_of_the_text() -> None:
    drafter = NgramDrafter()
    (chances,) = drafter.chances([_wish([7, 1, 2, 3, 4, 5, 6, 9, 1, 2, 3])])
    assert len(chances) == 8
    assert list(chances) == sorted(chances, reverse=True)
    assert drafter.draft([_wish([7, 1, 2, 3, 4, 5, 6, 9, 1, 2, 3])], [3]) == [(4, 5, 6)]


def test_a_text_in_circles_is_drafted_round_and_round() -> None:
    drafter, tokens = NgramDrafter(), [1, 2, 3, 1, 2, 3, 1, 2]
    drafter.chances([_wish(tokens)])
    assert drafter.draft([_wish(tokens)], [7]) == [(3, 1, 2, 3, 1, 2, 3)]


def test_nothing_to_copy_is_no_draft() -> None:
    drafter = NgramDrafter()
    assert drafter.chances([_wish(range(50))]) == [()]
    assert drafter.draft([_wish(range(50))], [0]) == [()]


def test_chances_follow_what_comes_whether_or_not_it_was_drafted() -> None:
    """Pairs that are followed by something new each time: after a while they are not worth a guess."""
    drafter, tokens = NgramDrafter(), [1, 2]
    first = None
    for number in range(60):
        tokens += [100 + number, 1, 2]
        (chances,) = drafter.chances([_wish(tokens)])
        first = chances[0] if first is None else first
    assert chances[0] < 0.1 < first
    drafter, tokens = NgramDrafter(), [1, 2]
    for number in range(60):
        tokens += [3, 200 + number, 1, 2]
        (chances,) = drafter.chances([_wish(tokens)])
    assert chances[0] > 0.8
    assert chances[1] < 0.5


def test_requests_are_learned_of_apart_and_forgotten() -> None:
    drafter = NgramDrafter()
    drafter.chances([_wish([1, 2, 3, 1, 2], request_id="a"), _wish([1, 2, 4, 1, 2], request_id="b")])
    assert drafter.draft(
        [_wish([1, 2, 3, 1, 2], request_id="a"), _wish([1, 2, 4, 1, 2], request_id="b")], [1, 1]
    ) == [(3,), (4,)]
    drafter.leave("a")
    drafter.leave("a")
    assert list(drafter._tracks) == ["b"]


def test_a_token_costs_the_same_however_long_the_text_and_however_often_it_repeats() -> None:
    def seconds(token_ids: list[int]) -> float:
        """For 300 more tokens, one at a time."""
        drafter = NgramDrafter()
        drafter.chances([_wish(token_ids)])
        best = 60.0
        for _ in range(3):
            started = time.thread_time()
            for number in range(100):
                token_ids.append(number % 2)
                drafter.chances([_wish(token_ids)])
            best = min(best, time.thread_time() - started)
        return best

    # Far from any limit, and far below what looking through the text would take.
    assert seconds([0, 1] * 50_000) < 20 * seconds([0, 1] * 50)
