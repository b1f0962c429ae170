"""GET /v1/models and /v1/models/{name}."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ferrum.server.error_responses import answering_errors, json_response
from ferrum.server.server_context import ServerContext


def models_router(context: ServerContext) -> APIRouter:
    """The routes over ``context``."""
    router = APIRouter()
    models = context.models

    @router.get("/v1/models")
    @answering_errors
    async def list_models(request: Request) -> Response:
        return json_response({"object": "list", "data": [models.card(name) for name in models.names]})

    # Names may hold a slash (ORG/REPO).
    @router.get("/v1/models/{name:path}")
    @answering_errors
    async def show_model(request: Request) -> Response:
        return json_response(models.card(models.resolve(request.path_params["name"])))

    return router
