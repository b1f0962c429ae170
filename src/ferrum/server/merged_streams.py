"""Several streams read as one, each piece with the index of its stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import TypeVar

from ferrum.server.disconnect import cancel_and_wait

Piece = TypeVar("Piece")

# Pieces that may wait between the streams and their reader, in all.
MERGE_CAPACITY = 64


async def merge_streams(streams: Sequence[AsyncIterator[Piece]]) -> AsyncGenerator[tuple[int, Piece], None]:
    """Pieces of all ``streams`` in the order of their arrival; the first error of any of them ends it.

    Closing the generator cancels the readers of the streams; closing the streams is their owner's part.
    """
    if len(streams) == 1:
        async for piece in streams[0]:
            yield 0, piece
        return
    queue: asyncio.Queue[tuple[int, Piece] | Exception | None] = asyncio.Queue(MERGE_CAPACITY)
    readers = [asyncio.create_task(_read(index, stream, queue)) for index, stream in enumerate(streams)]
    try:
        num_open = len(streams)
        while num_open:
            entry = await queue.get()
            if isinstance(entry, Exception):
                raise entry
            if entry is None:
                num_open -= 1
            else:
                yield entry
    finally:
        await cancel_and_wait(*readers)


async def _read(
    index: int, stream: AsyncIterator[Piece], queue: asyncio.Queue[tuple[int, Piece] | Exception | None]
) -> None:
    try:
        async for piece in stream:
            await queue.put((index, piece))
        await queue.put(None)
    except Exception as error:
        await queue.put(error)
