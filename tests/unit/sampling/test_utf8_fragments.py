"""Which bytes may be a part of a text, against Python's own decoder."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from ferrum.sampling.utf8_fragments import after_bytes, is_fragment

# Of each kind of byte of table 3-7 the first and the last.
EDGES = bytes.fromhex("417f 80 8f 90 9f a0 bf c0c1 c2df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff".replace(" ", ""))


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# Only the first byte after a lead is limited to a range.
COMPLETIONS = [
    b"",
    *(
        bytes([first]) + b"\x80" * count
        for first in (0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF)
        for count in range(3)
    ),
]
BEGINNINGS = [
    bytes(each)
    for each in (
        *itertools.product((0xC2, 0xE1, 0xF1)),
        *itertools.product((0xE0, 0xE1, 0xED, 0xEF), (0x80, 0x9F, 0xA0, 0xBF)),
        *itertools.product((0xF0, 0xF1, 0xF4), (0x80, 0x8F, 0x90, 0xBF)),
        *itertools.product((0xF0, 0xF1, 0xF4), (0x80, 0x8F, 0x90, 0xBF), (0x80, 0xBF)),
    )
]


def test_a_fragment_is_what_some_text_has_in_it_and_no_text_itself() -> None:
    """Short runs of edge bytes: a fragment exactly when bytes before and after make a text of them."""
    for size in (1, 2, 3):
        for each in itertools.islice(itertools.product(EDGES, repeat=size), 0, None, 1 if size < 3 else 7):
            data = bytes(each)
            if is_text(data):
                assert not is_fragment(data)
                continue
            in_some_text = any(
                is_text(before + data + after) for before in (b"", *BEGINNINGS) for after in COMPLETIONS
            )
            # A fragment is judged without what comes before it, so it may claim what no beginning fits.
            assert is_fragment(data) or not in_some_text, data
            assert in_some_text or not is_fragment(data), data


def test_more_than_three_leading_continuation_bytes_are_no_fragment() -> None:
    assert is_fragment(b"\x80\x80\x80")
    assert is_fragment(b"\xbf\xbf\xbfabc")
    assert not is_fragment(b"\x80\x80\x80\x80")


def test_broken_text_inside_is_no_fragment() -> None:
    assert is_fragment(b"\x80\xef\xbf\xbc")
    assert not is_fragment(b"\x80\xef\xbf\xbd")
    assert not is_fragment("\u00ef\u00bf\u00bd".encode() + b"\xe2")


@given(text=st.text(max_size=12).filter(lambda text: "\ufffd" not in text), cuts=st.lists(st.integers(0, 48)))
def test_a_text_in_any_pieces_leaves_nothing_pending(text: str, cuts: list[int]) -> None:
    data = text.encode()
    borders = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    pending: bytes | None = b""
    for start, end in itertools.pairwise(borders):
        assert pending is not None
        pending = after_bytes(pending, data[start:end])
        assert pending is not None
        assert len(pending) <= 3
        assert (data[:end].decode("utf-8", "ignore").encode() + pending) == data[:end]
    assert pending == b""


def test_what_cannot_go_on_is_said_so() -> None:
    assert after_bytes(b"\xf0\x9f", b"\x99\x82!") == b""
    assert after_bytes(b"\xf0\x9f", b"a") is None
    assert after_bytes(b"", b"\x82") is None
    assert after_bytes(b"\xe0", b"\x80") is None
    assert after_bytes(b"\xef\xbf", b"\xbd") is None
    assert after_bytes(b"\xc3", "\u00af\u00c2".encode()) is None
