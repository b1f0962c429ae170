"""Puts the HTTP application together from its routes. Knows nothing of sockets, signals or models."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from ferrum.server.chat_completions import chat_completions_router
from ferrum.server.completions import completions_router
from ferrum.server.error_responses import answer_http_exception
from ferrum.server.health import health_router
from ferrum.server.metrics_route import metrics_router
from ferrum.server.models import models_router
from ferrum.server.server_context import ServerContext


def create_app(context: ServerContext) -> FastAPI:
    """The ASGI application over ``context``; it owns nothing that would need closing."""
    app = FastAPI(title="Ferrum", docs_url=None, redoc_url=None, openapi_url=None)
    for make_router in (
        chat_completions_router,
        completions_router,
        models_router,
        health_router,
        metrics_router,
    ):
        app.include_router(make_router(context))
    app.add_exception_handler(HTTPException, answer_http_exception)
    if context.options.cors_origins:
        # Outermost, so that errors and preflights carry the headers too; never together with credentials.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(context.options.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
        )
    return app
