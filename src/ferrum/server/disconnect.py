"""Work that ends when its client goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

Answer = TypeVar("Answer")

# Key in a request's ASGI state: an asyncio.Event, set when the client writes no more. It may still read.
HALF_CLOSED = "half_closed"

# Such a client may also be gone: what is written to it tells, since one that is gone resets the connection.
# The first two writes lie so far apart; the pauses double from then on.
FIRST_DOUBT_S = 0.1


async def wait_for_disconnect(receive: Receive) -> None:
    """Returns when the client has closed the connection. The request body must have been read before."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def run_while_connected(receive: Receive, work: Coroutine[Any, Any, Answer]) -> Answer:
    """The result of ``work``; cancels it and raises ClientDisconnect as soon as the client is gone."""
    working = asyncio.create_task(work)
    watching = asyncio.create_task(wait_for_disconnect(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        await cancel_and_wait(working, watching)


async def cancel_and_wait(*tasks: asyncio.Task[Any]) -> None:
    """Cancels what still runs and waits until it has cleaned up; its errors have no reader left."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
