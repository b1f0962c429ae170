"""GET /health: is the engine alive. GET /ready: would a request be taken. Neither waits for the engine."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ferrum.server.error_responses import answering_errors, json_response
from ferrum.server.server_context import ServerContext


def health_router(context: ServerContext) -> APIRouter:
    """The routes over ``context``."""
    router = APIRouter()

    @router.api_route("/health", methods=["GET", "HEAD"])
    @answering_errors
    async def health(request: Request) -> Response:
        return _state(context.engine.death_reason, "ok")

    @router.api_route("/ready", methods=["GET", "HEAD"])
    @answering_errors
    async def ready(request: Request) -> Response:
        draining = "the server is shutting down" if context.lifecycle.is_draining else None
        return _state(context.engine.death_reason or draining, "ready")

    return router


def _state(reason: str | None, word: str) -> Response:
    if reason is None:
        return json_response({"status": word})
    return json_response({"status": "unavailable", "reason": reason}, 503)
