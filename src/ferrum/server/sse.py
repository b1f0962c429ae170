"""Server-sent events: framing, heartbeats until the first token, and the end of a stream whose client left.

Format: https://html.spec.whatwg.org/multipage/server-sent-events.html; OpenAI's streams end with ``[DONE]``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ferrum.server.disconnect import FIRST_DOUBT_S, HALF_CLOSED, cancel_and_wait, wait_for_disconnect
from ferrum.server.engine_door import ChunkStream
from ferrum.server.error_responses import error_body, record_failure

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    # nginx would otherwise collect the stream before it passes it on.
    "X-Accel-Buffering": "no",
}


def data_event(content: object) -> bytes:
    """One event that carries ``content`` as JSON."""
    return b"data: " + orjson.dumps(content) + b"\n\n"


async def close_streams(streams: Iterable[ChunkStream]) -> None:
    """Ends every stream, which cancels its request if it is still running."""
    for stream in streams:
        await stream.aclose()


class EventStreamResponse(Response):
    """Sends ``opening`` at once and then ``events`` as they come, until they end, fail, or the client leaves.

    ``events`` and the engine's ``streams`` below it are closed on every path out. An error becomes one error
    event, after which the answer ends without ``[DONE]``. Used for one request.
    """

    def __init__(
        self,
        opening: bytes,
        streams: Iterable[ChunkStream],
        events: AsyncGenerator[bytes, None],
        ping_interval_s: float,
    ) -> None:
        super().__init__(status_code=200, headers=HEADERS)
        del self.headers["content-length"]
        self._opening = opening
        self._streams = tuple(streams)
        self._events = events
        self._ping_interval_s = ping_interval_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        half_closed = scope.get("state", {}).get(HALF_CLOSED, asyncio.Event())
        sending = asyncio.create_task(self._send_all(send, half_closed))
        watching = asyncio.create_task(wait_for_disconnect(receive))
        try:
            await asyncio.wait({sending, watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(sending, watching)
            await self._events.aclose()
            await close_streams(self._streams)

    async def _send_all(self, send: Send, half_closed: asyncio.Event) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await _send_part(send, self._opening)
        try:
            await self._send_first_with_pings(send, half_closed)
            async for event in self._events:
                await _send_part(send, event)
        except Exception as error:
            record_failure(error)
            await _send_part(send, data_event(error_body(error)))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_first_with_pings(self, send: Send, half_closed: asyncio.Event) -> None:
        first = asyncio.ensure_future(anext(self._events, b""))
        doubt = asyncio.create_task(half_closed.wait())
        pause_s = self._ping_interval_s
        try:
            while not first.done():
                was_sure = not doubt.done()
                watched = {first, doubt} if was_sure else {first}
                await asyncio.wait(watched, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
                if first.done():
                    break
                if doubt.done():
                    # A client that is gone resets the connection at the second ping.
                    pause_s = FIRST_DOUBT_S if was_sure else min(2 * pause_s, self._ping_interval_s)
                await _send_part(send, PING)
            await _send_part(send, first.result())
        finally:
            await cancel_and_wait(first, doubt)


async def _send_part(send: Send, body: bytes) -> None:
    if body:
        await send({"type": "http.response.body", "body": body, "more_body": True})
