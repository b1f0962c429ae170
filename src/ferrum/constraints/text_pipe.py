"""Lists of texts between two processes, framed by their lengths. Knows nothing of what they say."""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Sequence

Texts = Sequence[str | None]

_FRAME = struct.Struct("<Q")  # Bytes that follow.
_LENGTH = struct.Struct("<q")  # Bytes of one text; negative: None.
_READ_BYTES = 1 << 20


class TextPipe:
    """One end: reads from one file descriptor and writes to another, and closes neither.

    ``deadline`` is on time.monotonic, None = however long it takes; TimeoutError when it has passed. Raises
    EOFError when the other end is gone. After any of them nothing more can be said. Used by one thread at a
    time.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        for fd in (read_fd, write_fd):
            os.set_blocking(fd, False)

    def send(self, texts: Texts, deadline: float | None = None) -> None:
        left = memoryview(_pack(texts))
        while left:
            self._wait(self._write_fd, select.POLLOUT, deadline)
            try:
                left = left[os.write(self._write_fd, left) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise EOFError from None

    def has_answer(self, wait_s: float) -> bool:
        """Whether something comes within that time."""
        try:
            self._wait(self._read_fd, select.POLLIN, time.monotonic() + wait_s)
        except TimeoutError:
            return False
        return True

    def receive(self, deadline: float | None = None) -> list[str | None]:
        (size,) = _FRAME.unpack(self._read(_FRAME.size, deadline))
        return _unpack(self._read(size, deadline))

    def _read(self, size: int, deadline: float | None) -> bytes:
        read = bytearray()
        while len(read) < size:
            self._wait(self._read_fd, select.POLLIN, deadline)
            try:
                piece = os.read(self._read_fd, min(size - len(read), _READ_BYTES))
            except BlockingIOError:
                continue
            if not piece:
                raise EOFError
            read += piece
        return bytes(read)

    def _wait(self, fd: int, event: int, deadline: float | None) -> None:
        # Not select(): a server may hold more descriptors than it can take.
        poll = select.poll()
        poll.register(fd, event)
        left_ms = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1e3
        if not poll.poll(left_ms):
            raise TimeoutError


def _pack(texts: Texts) -> bytes:
    parts = []
    for text in texts:
        data = b"" if text is None else text.encode("utf-8", "surrogatepass")
        parts += [_LENGTH.pack(-1 if text is None else len(data)), data]
    body = b"".join(parts)
    return _FRAME.pack(len(body)) + body


def _unpack(body: bytes) -> list[str | None]:
    texts: list[str | None] = []
    place = 0
    while place < len(body):
        (size,) = _LENGTH.unpack_from(body, place)
        place += _LENGTH.size
        if size < 0:
            texts.append(None)
        else:
            texts.append(body[place : place + size].decode("utf-8", "surrogatepass"))
            place += size
    return texts
