"""One answer as an asynchronous stream of text with its result at the end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Self

from ferrum.core.errors import FerrumError
from ferrum.core.request import StreamChunk
from ferrum.engine.delivery import End, LoopMailbox
from ferrum.engine.delta import Delta


class StreamChannel:
    """The engine's side of a stream: text that waits for its reader, and the end. Lives on one asyncio loop.

    Holds at most ``capacity`` pieces for a slow reader: after that, new text joins the newest piece, so
    nothing is lost and the engine never waits. The engine keeps the channel and not the reader, so a reader
    can be dropped.
    """

    shows_text = True

    def __init__(self, mailbox: LoopMailbox, capacity: int) -> None:
        self._mailbox = mailbox
        self._capacity = capacity
        self._waiter: asyncio.Future[None] | None = None
        self.pieces: deque[Delta] = deque()
        self.end: End | None = None

    @property
    def mailbox(self) -> LoopMailbox | None:
        return self._mailbox

    def deliver(self, delta: Delta, end: End | None) -> None:
        if self.end is not None:
            return
        if delta and len(self.pieces) >= self._capacity:
            self.pieces[-1] += delta
        elif delta:
            self.pieces.append(delta)
        self.end = end
        self.wake_reader()

    async def wait(self) -> None:
        """Until something was delivered, or the reader was woken."""
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def wake_reader(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class ResultStream:
    """An AsyncIterator of StreamChunk; the last one carries the result. A failure is raised by the iterator.

    Closing the stream, or dropping it, cancels the request (``on_leave``). Giving up one wait for the next
    chunk (a timeout) does not. Used on the loop that opened it.
    """

    def __init__(self, channel: StreamChannel, on_leave: Callable[[], None]) -> None:
        self._channel = channel
        self._on_leave = on_leave
        self._is_over = False

    @property
    def num_buffered(self) -> int:
        """Pieces of text that wait for the reader."""
        return len(self._channel.pieces)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamChunk:
        channel = self._channel
        while not (channel.pieces or channel.end or self._is_over):
            await channel.wait()
        if self._is_over:
            raise StopAsyncIteration
        if channel.pieces:
            delta = channel.pieces.popleft()
            return StreamChunk(delta.text, logprobs=delta.logprobs)
        self._is_over = True
        assert channel.end is not None
        if isinstance(channel.end, FerrumError):
            raise channel.end
        return StreamChunk("", channel.end)

    async def aclose(self) -> None:
        """Ends the stream; a request that still runs is cancelled. Idempotent."""
        if not self._is_over:
            self._is_over = True
            self._on_leave()
            self._channel.wake_reader()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if not self._is_over:
            self._on_leave()
