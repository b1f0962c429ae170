"""The stop string that starts first ends the text, however the text is cut into pieces."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from ferrum.tokenization.stop_strings import MatchResult, StopMatcher

SHORT_TEXTS = st.text("ab", max_size=14)
STOPS = st.lists(st.text("ab", min_size=1, max_size=5), max_size=4)


def cut_by_search(text: str, stops: list[str]) -> tuple[str, bool]:
    """The definition, on the whole text."""
    starts = [text.find(stop) for stop in stops if stop in text]
    return (text[: min(starts)], True) if starts else (text, False)


def stream(pieces: list[str], stops: list[str]) -> tuple[list[str], bool]:
    matcher = StopMatcher(stops)
    emitted = []
    for piece in pieces:
        result = matcher.push(piece)
        emitted.append(result.emit)
        if result.is_match:
            return emitted, True
    last = matcher.flush()
    return [*emitted, last.emit], last.is_match


def chunks(text: str, cuts: list[int]) -> list[str]:
    borders = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in itertools.pairwise(borders)]


@given(text=SHORT_TEXTS, stops=STOPS, cuts=st.lists(st.integers(0, 20), max_size=6))
def test_streamed_equals_searched(text: str, stops: list[str], cuts: list[int]) -> None:
    emitted, is_match = stream(chunks(text, cuts), stops)
    assert ("".join(emitted), is_match) == cut_by_search(text, stops)
    assert stream(list(text), stops)[1] == is_match


@given(text=SHORT_TEXTS, stops=STOPS)
def test_only_a_possible_beginning_is_held_back(text: str, stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    seen = shown = ""
    for character in text:
        result = matcher.push(character)
        seen += character
        shown += result.emit
        if result.is_match:
            return
        held = seen[len(shown) :]
        begins_a_stop = any(stop.startswith(held) for stop in stops)
        waits_for_an_earlier_one = any(stop in held for stop in stops)
        assert not held or begins_a_stop or waits_for_an_earlier_one


def test_every_substring_as_a_stop_cuts_before_its_first_occurrence() -> None:
    text = "The model writes please and then please wait, er, pleases."
    for start in range(len(text)):
        for size in range(2, 13):
            stop = text[start : start + size]
            assert "".join(stream(list(text), [stop])[0]) == text[: text.index(stop)]


def test_the_earliest_of_several_stops_wins() -> None:
    assert stream(["a", " b", " c"], ["very long never", " b"]) == (["a", ""], True)
    assert stream(list("xabcdy"), ["abcd", "bc"]) == (["x", "", "", "", ""], True)
    assert stream(list("xabcey"), ["abcd", "bc"]) == (["x", "", "", "", "a"], True)


def test_text_held_back_comes_out_at_the_end() -> None:
    assert stream(["please"], ["please wait"]) == (["", "please"], False)
    assert stream(["please wai"], ["please wait"]) == (["", "please wai"], False)


def test_a_stop_complete_inside_held_text_is_found_at_the_end() -> None:
    assert stream(["abc"], ["abcd", "bc"]) == (["", "a"], True)


def test_text_without_stops_passes_at_once() -> None:
    assert StopMatcher([]).push("anything") == MatchResult("anything")
