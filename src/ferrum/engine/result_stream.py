"""The answers of a request as an asynchronous stream of text, each with its result at its end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Self

from ferrum.core.errors import FerrumError
from ferrum.core.request import StreamChunk
from ferrum.engine.delivery import End, LoopMailbox
from ferrum.engine.delta import Delta


class Doorbell:
    """Wakes the one reader of a stream. Lives on one asyncio loop."""

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Until it rings."""
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def ring(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class StreamChannel:
    """The engine's side of one answer in a stream: text that waits for its reader, and the end. Lives on one
    asyncio loop.

    Holds at most ``capacity`` pieces for a slow reader: after that, new text joins the newest piece, so
    nothing is lost and the engine never waits. The engine keeps the channel and not the reader, so a reader
    can be dropped.
    """

    shows_text = True

    def __init__(self, mailbox: LoopMailbox, capacity: int, bell: Doorbell) -> None:
        self._mailbox = mailbox
        self._capacity = capacity
        self._bell = bell
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
        self._bell.ring()


class ResultStream:
    """An AsyncIterator of StreamChunk; each answer's last one carries its result. A failure of any answer is
    raised by the iterator and ends all.

    What waits of several answers is taken from each in turn. Closing the stream, or dropping it, cancels the
    request (``on_leave``). Giving up one wait for the next chunk (a timeout) does not. Used on the loop that
    opened it.
    """

    def __init__(
        self, channels: Sequence[StreamChannel], bell: Doorbell, on_leave: Callable[[], None]
    ) -> None:
        self._open = deque(enumerate(channels))
        self._bell = bell
        self._on_leave = on_leave
        self._is_over = False

    @property
    def num_buffered(self) -> int:
        """Pieces of text that wait for the reader."""
        return sum(len(channel.pieces) for _, channel in self._open)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamChunk:
        while not self._is_over:
            chunk = self._next_chunk()
            if chunk is not None:
                return chunk
            await self._bell.wait()
        raise StopAsyncIteration

    def _next_chunk(self) -> StreamChunk | None:
        for _ in range(len(self._open)):
            index, channel = self._open[0]
            if channel.pieces:
                self._open.rotate(-1)
                delta = channel.pieces.popleft()
                return StreamChunk(delta.text, logprobs=delta.logprobs, index=index)
            if channel.end is not None:
                self._open.popleft()
                return self._last_chunk(index, channel.end)
            self._open.rotate(-1)
        return None

    def _last_chunk(self, index: int, end: End) -> StreamChunk:
        self._is_over = not self._open
        if isinstance(end, FerrumError):
            if not self._is_over:
                self._is_over = True
                self._on_leave()
            raise end
        return StreamChunk("", end, index=index)

    async def aclose(self) -> None:
        """Ends the stream; a request that still runs is cancelled. Idempotent."""
        if not self._is_over:
            self._is_over = True
            self._on_leave()
            self._bell.ring()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if not self._is_over:
            self._on_leave()
