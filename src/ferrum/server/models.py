"""GET /v1/models and /v1/models/{name}."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ferrum.server.error_responses import answering_errors, json_response
from ferrum.server.server_context import ServerContext


def models_routes(context: ServerContext) -> list[Route]:
    """The routes over ``context``."""
    models = context.models

    @answering_errors
    async def list_models(request: Request) -> Response:
        return json_response({"object": "list", "data": [models.card(name) for name in models.names]})

    @answering_errors
    async def show_model(request: Request) -> Response:
        return json_response(models.card(models.resolve(request.path_params["name"])))

    # Names may hold a slash (ORG/REPO).
    return [Route("/v1/models", list_models), Route("/v1/models/{name:path}", show_model)]
