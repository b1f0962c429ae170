"""GET /health: is the engine alive. GET /ready: would a request be taken. Neither waits for the engine."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ferrum.server.error_responses import answering_errors, json_response
from ferrum.server.server_context import ServerContext


def health_routes(context: ServerContext) -> list[Route]:
    """The routes over ``context``."""

    @answering_errors
    async def health(request: Request) -> Response:
        return _state(context.engine.death_reason, "ok")

    @answering_errors
    async def ready(request: Request) -> Response:
        draining = "the server is shutting down" if context.lifecycle.is_draining else None
        return _state(context.engine.death_reason or draining, "ready")

    return [Route("/health", health), Route("/ready", ready)]


def _state(reason: str | None, word: str) -> Response:
    if reason is None:
        return json_response({"status": word})
    return json_response({"status": "unavailable", "reason": reason}, 503)
