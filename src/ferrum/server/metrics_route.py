"""GET /metrics in Prometheus' text format, version 0.0.4."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ferrum.server.error_responses import answering_errors
from ferrum.server.server_context import ServerContext
from ferrum.server.session_cache_metrics import SessionCacheCollector


def metrics_routes(context: ServerContext) -> list[Route]:
    """The route over ``context``: the engine's numbers and the server's own."""
    own = CollectorRegistry()
    own.register(SessionCacheCollector(context.sessions))

    @answering_errors
    async def metrics(request: Request) -> Response:
        text = generate_latest(context.engine.registry) + generate_latest(own)
        return Response(text, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    return [Route("/metrics", metrics)]
