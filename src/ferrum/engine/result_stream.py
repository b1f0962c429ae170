"""One answer as an asynchronous stream of text with its result at the end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Self

from ferrum.core.errors import FerrumError
from ferrum.core.request import StreamChunk
from ferrum.engine.delivery import End, LoopMailbox


class ResultStream:
    """An AsyncIterator of StreamChunk; the last one carries the result. A failure is raised by the iterator.

    Holds at most ``capacity`` chunks for a slow reader: after that, new text joins the newest chunk, so nothing is
    lost and the engine never waits. Closing the stream, or dropping it, cancels the request. Giving up one wait for
    the next chunk (a timeout) does not. All of it runs on the loop that opened the stream.
    """

    def __init__(self, mailbox: LoopMailbox, capacity: int) -> None:
        self._mailbox = mailbox
        self._capacity = capacity
        self._chunks: deque[str] = deque()
        self._end: End | None = None
        self._is_over = False
        self._waiter: asyncio.Future[None] | None = None
        self._on_drop: Callable[[], None] | None = None

    @property
    def mailbox(self) -> LoopMailbox | None:
        return self._mailbox

    @property
    def num_buffered(self) -> int:
        """Chunks of text that wait for the reader."""
        return len(self._chunks)

    def cancels_with(self, on_drop: Callable[[], None]) -> None:
        """Says what to call, from any thread, when the reader leaves before the end."""
        self._on_drop = on_drop

    def deliver(self, text: str, end: End | None) -> None:
        if text and len(self._chunks) >= self._capacity:
            self._chunks[-1] += text
        elif text:
            self._chunks.append(text)
        if end is not None:
            self._end, self._on_drop = end, None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamChunk:
        while not self._chunks and self._end is None and not self._is_over:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._is_over:
            raise StopAsyncIteration
        if self._chunks:
            return StreamChunk(self._chunks.popleft())
        self._is_over = True
        if isinstance(self._end, FerrumError):
            raise self._end
        assert self._end is not None
        return StreamChunk("", self._end)

    async def aclose(self) -> None:
        """Ends the stream; a request that still runs is cancelled. Idempotent."""
        self._is_over = True
        self._chunks.clear()
        self._drop()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def _drop(self) -> None:
        on_drop, self._on_drop = self._on_drop, None
        if on_drop is not None:
            on_drop()

    def __del__(self) -> None:
        self._drop()
