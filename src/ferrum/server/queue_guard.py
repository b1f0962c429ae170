"""QueueGuard: refuses a request to generate while the queue is full, before anything of it is read."""

from __future__ import annotations

from collections.abc import Collection

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from ferrum.core.errors import FerrumError
from ferrum.server.error_responses import error_response
from ferrum.server.request_body import discard_body
from ferrum.server.server_context import ServerContext


class QueueGuard:
    """Middleware before the routes with ``paths``. Overload costs as little as it can: a thousand refusals
    must not hold up the streams of those that were taken.

    A request that is wrong as well is refused for the queue; one that passes may still find it full.
    """

    def __init__(self, app: ASGIApp, context: ServerContext, paths: Collection[str]) -> None:
        self._app = app
        self._context = context
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in self._paths:
            return await self._app(scope, receive, send)
        try:
            self._context.lifecycle.require_open()
            self._context.engine.require_room()
        except FerrumError as error:
            try:
                has_ended = await discard_body(Request(scope, receive))
            except ClientDisconnect:
                return None
            response = error_response(error)
            if not has_ended:
                response.headers["Connection"] = "close"
            return await response(scope, receive, send)
        return await self._app(scope, receive, send)
