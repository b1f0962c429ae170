"""A run of symbols is found in a stream, overlaps included."""

from hypothesis import given
from hypothesis import strategies as st

from ferrum.completion_boundary.symbol_pattern import SymbolPattern


@given(pattern=st.text("ab", min_size=1, max_size=6), text=st.text("abc", max_size=30))
def test_the_state_is_the_longest_end_of_the_stream_that_begins_the_pattern(pattern: str, text: str) -> None:
    compiled = SymbolPattern.of(pattern)
    matched, seen = 0, ""
    for character in text:
        matched = compiled.after(matched, character)
        seen += character
        lengths = [n for n in range(len(pattern) + 1) if seen.endswith(pattern[:n])]
        assert matched == max(lengths)
        if compiled.is_whole(matched):
            assert seen.endswith(pattern)
            return
    assert pattern not in text


def test_symbols_may_be_tokens() -> None:
    compiled = SymbolPattern.of([7, "a", 7, "b"])
    matched = 0
    for symbol in (7, "a", 7, "a", 7):
        matched = compiled.after(matched, symbol)
    assert matched == 3
    assert compiled.is_whole(compiled.after(matched, "b"))
