"""HTTP answers however the network cuts them: the same payloads, the same end."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrum.bench.load.event_stream import MAX_ERROR_BYTES, BrokenAnswer, EventStream

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PAYLOADS = [b'{"a":"\xc3\xa9"}', b"{}", b"[DONE]"]


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x;note=1\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def events(line_end: bytes) -> bytes:
    return b": ping" + line_end * 2 + b"".join(b"data: " + one + line_end * 2 for one in PAYLOADS)


def fed(stream: EventStream, data: bytes, cuts: list[int]) -> list[bytes]:
    borders = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    payloads: list[bytes] = []
    for start, end in pairwise(borders):
        payloads += stream.feed(data[start:end])
    return payloads


@given(
    cuts=st.lists(st.integers(0, 500), max_size=30),
    chunk_at=st.integers(1, 60),
    line_end=st.sampled_from([b"\n", b"\r\n"]),
)
def test_any_cut_gives_the_same_events(cuts: list[int], chunk_at: int, line_end: bytes) -> None:
    body = events(line_end)
    data = HEAD + chunked(body[:chunk_at], body[chunk_at:])
    stream = EventStream()
    assert fed(stream, data, cuts) == PAYLOADS
    assert stream.status == 200
    assert stream.is_complete


def test_a_body_without_chunks_is_read_until_the_connection_ends() -> None:
    stream = EventStream()
    data = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + events(b"\n")
    assert fed(stream, data, [50, 90]) == PAYLOADS
    assert not stream.is_complete


def test_the_body_of_a_refusal_is_kept_within_bounds() -> None:
    stream = EventStream()
    assert fed(stream, b"HTTP/1.1 429 Too Many\r\n\r\ndata: no\n" + b"x" * 10_000, [30]) == []
    assert stream.status == 429
    assert stream.error_body.startswith(b"data: no")
    assert len(stream.error_body) == MAX_ERROR_BYTES


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not an HTTP answer"),
        (b"HTTP/1.1 soon\r\n\r\n", "not an HTTP answer"),
        (HEAD + b"zz\r\n", "bad chunk size"),
        (b"H" * 70_000, "endless header"),
    ],
)
def test_what_is_no_answer_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(BrokenAnswer, match=words):
        list(EventStream().feed(data))
