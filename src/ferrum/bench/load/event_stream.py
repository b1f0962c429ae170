"""An HTTP/1.1 answer read piece by piece as it arrives: status, chunked body, server-sent events.

Sources: RFC 9112 (message format, chunked transfer coding) and the HTML standard's server-sent events.
"""

from __future__ import annotations

from collections.abc import Iterator

MAX_HEADER_BYTES = 65_536
MAX_ERROR_BYTES = 4_096


class BrokenAnswer(Exception):
    """What came is not an HTTP answer; ``args`` says why."""


class ChunkedBody:
    """Decodes the chunked transfer coding. ``is_complete`` once the last chunk has come."""

    def __init__(self) -> None:
        self.is_complete = False
        self._buffer = b""
        self._left = 0  # bytes of the current chunk still to come, its line end included

    def feed(self, data: bytes) -> bytes:
        """The body bytes in ``data``. Raises BrokenAnswer for a bad chunk size."""
        self._buffer += data
        body = []
        while self._buffer and not self.is_complete:
            if self._left > 2:
                piece = self._buffer[: self._left - 2]
                body.append(piece)
                self._buffer = self._buffer[len(piece) :]
                self._left -= len(piece)
            elif self._left:
                skipped = min(self._left, len(self._buffer))
                self._buffer = self._buffer[skipped:]
                self._left -= skipped
            elif not self._begin_chunk():
                break
        return b"".join(body)

    def _begin_chunk(self) -> bool:
        line, found, rest = self._buffer.partition(b"\r\n")
        if not found:
            return False
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError:
            raise BrokenAnswer(f"bad chunk size {line[:40]!r}") from None
        self._buffer = rest
        self._left = size + 2
        self.is_complete = size == 0
        return True


class EventStream:
    """The state of one answer. ``status`` is None until the header is there. Fed by one connection."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.error_body = b""
        self._header = b""
        self._chunked: ChunkedBody | None = None
        self._line = b""

    @property
    def is_complete(self) -> bool:
        """Whether the body said that it has ended; a body without chunks ends with the connection."""
        return self._chunked is not None and self._chunked.is_complete

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The payloads of the ``data:`` lines that ``data`` completes. Raises BrokenAnswer."""
        if self.status is None:
            self._header += data
            head, found, data = self._header.partition(b"\r\n\r\n")
            if not found:
                if len(self._header) > MAX_HEADER_BYTES:
                    raise BrokenAnswer("endless header")
                return
            self._read_header(head)
        body = data if self._chunked is None else self._chunked.feed(data)
        if self.status != 200:
            self.error_body = (self.error_body + body)[:MAX_ERROR_BYTES]
            return
        *lines, self._line = (self._line + body).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()

    def _read_header(self, head: bytes) -> None:
        first, *fields = head.split(b"\r\n")
        words = first.split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise BrokenAnswer(f"not an HTTP answer: {first[:40]!r}")
        self.status = int(words[1])
        for field in fields:
            name, _, value = field.partition(b":")
            if name.strip().lower() == b"transfer-encoding" and b"chunked" in value.lower():
                self._chunked = ChunkedBody()
