"""The stop string that starts first ends the text, however the text is cut into pieces."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from ferrum.tokenization.gguf_tokenizer import tokenizer_from_gguf
from ferrum.tokenization.stop_strings import MatchResult, StopMatcher
from ferrum.tokenization.stream_decoder import StreamDecoder
from text_corpus import stop_texts
from tiny_vocabularies import metadata, sentencepiece_values

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


def test_every_piece_of_many_texts_cuts_each_before_its_first_occurrence() -> None:
    for text in stop_texts():
        pieces = {text[i : i + size] for size in range(2, 13) for i in range(len(text) - size + 1)}
        assert pieces
        for stop in pieces:
            # Cut where the stop string is in the middle of being said, and before and after it.
            cut = text.index(stop) + len(stop) // 2
            for borders in (chunks(text, [cut]), chunks(text, [cut - 1, cut, cut + 1])):
                assert "".join(stream(borders, [stop])[0]) == text[: text.index(stop)]
            assert StopMatcher([stop]).push(text).stop == stop


def test_two_overlapping_stops_cut_before_the_one_that_starts_first() -> None:
    for text in stop_texts()[:8]:
        for start in range(1, len(text) - 6, 3):
            stops = [text[start : start + 4], text[start + 2 : start + 5], text[start - 1 : start + 4] + "\0"]
            expected = min(text.index(stop) for stop in stops if stop in text)
            assert "".join(stream(list(text), stops)[0]) == text[:expected]


def test_the_stop_string_found_is_named() -> None:
    assert StopMatcher(["cd", "bc"]).push("abcd") == MatchResult("a", "bc")
    assert StopMatcher(["ab", "abc"]).push("xabc") == MatchResult("x", "ab")
    held = StopMatcher(["abcd", "bc"])
    held.push("abc")
    assert held.flush() == MatchResult("a", "bc")


def test_a_stop_string_that_ends_in_a_passed_over_piece_is_text() -> None:
    matcher = StopMatcher(["ab"])
    assert matcher.pass_over("xab").emit + matcher.push("y").emit == "xaby"
    assert matcher.push("ab") == MatchResult("", "ab")


def test_a_stop_string_that_ends_after_a_passed_over_piece_counts() -> None:
    matcher = StopMatcher(["abc"])
    assert matcher.pass_over("xab") == MatchResult("x")
    assert matcher.push("c") == MatchResult("", "abc")


@given(
    text=SHORT_TEXTS, stops=STOPS, passed=st.integers(0, 14), cuts=st.lists(st.integers(0, 20), max_size=6)
)
def test_passing_over_a_beginning_only_forgives_the_stops_complete_in_it(
    text: str, stops: list[str], passed: int, cuts: list[int]
) -> None:
    matcher = StopMatcher(stops)
    results = [matcher.pass_over(text[:passed])]
    for piece in chunks(text[passed:], cuts):
        results.append(matcher.push(piece))
        if results[-1].is_match:
            break
    else:
        results.append(matcher.flush())
    starts = [
        start
        for stop in stops
        for start in range(len(text))
        if text.startswith(stop, start) and start + len(stop) > passed
    ]
    assert "".join(result.emit for result in results) == text[: min(starts, default=len(text))]


def test_the_earliest_of_several_stops_wins() -> None:
    assert stream(["a", " b", " c"], ["very long never", " b"]) == (["a", ""], True)
    assert stream(list("xabcdy"), ["abcd", "bc"]) == (["x", "", "", "", ""], True)
    assert stream(list("xabcey"), ["abcd", "bc"]) == (["x", "", "", "", "a"], True)


def test_text_held_back_comes_out_at_the_end() -> None:
    assert stream(["please"], ["please wait"]) == (["", "please"], False)
    assert stream(["please wai"], ["please wait"]) == (["", "please wai"], False)


def test_a_stop_complete_inside_held_text_is_found_at_the_end() -> None:
    assert stream(["abc"], ["abcd", "bc"]) == (["", "a"], True)


def test_spaces_that_pieces_write_with_their_words_are_found() -> None:
    """Words of a SentencePiece vocabulary, whose spaces are lost when each is decoded alone."""
    tokenizer = tokenizer_from_gguf(metadata(sentencepiece_values()), None)
    ids = tokenizer.encode("the hell the")
    assert len(ids) < len("the hell the")
    decoder = StreamDecoder(tokenizer)
    emitted, is_match = stream([*map(decoder.push, ids), decoder.flush()], ["very long never", " hell"])
    assert ("".join(emitted), is_match) == ("the", True)


def test_text_without_stops_passes_at_once() -> None:
    assert StopMatcher([]).push("anything") == MatchResult("anything")
