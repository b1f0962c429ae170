"""Puts the HTTP application together from its routes. Knows nothing of sockets, signals or models."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from ferrum.server import chat_completions, completions
from ferrum.server.chat_completions import chat_completions_routes
from ferrum.server.completions import completions_routes
from ferrum.server.error_responses import answer_http_exception
from ferrum.server.health import health_routes
from ferrum.server.metrics_route import metrics_routes
from ferrum.server.models import models_routes
from ferrum.server.pins import pins_routes
from ferrum.server.queue_guard import QueueGuard
from ferrum.server.server_context import ServerContext
from ferrum.server.sessions import sessions_routes


def create_app(context: ServerContext) -> Starlette:
    """The ASGI application over ``context``; it owns nothing that would need closing."""
    routes = [
        *chat_completions_routes(context),
        *completions_routes(context),
        *models_routes(context),
        *health_routes(context),
        *metrics_routes(context),
        *pins_routes(context),
        *sessions_routes(context),
    ]
    app = Starlette(routes=routes)
    app.add_middleware(QueueGuard, context=context, paths=(chat_completions.PATH, completions.PATH))
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
