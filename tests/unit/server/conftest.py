import pytest
from scripted_engine import ScriptedEngine
from starlette.applications import Starlette

from ferrum.server.app import create_app
from ferrum.server.lifecycle import ServerLifecycle
from ferrum.server.served_models import ServedModels
from ferrum.server.server_context import ServerContext
from ferrum.server.server_options import ServerOptions


@pytest.fixture
async def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def context(engine: ScriptedEngine) -> ServerContext:
    models = ServedModels(("tiny", "tiny-alias", "org/tiny"), created=1, context_length=64)
    options = ServerOptions(max_body_bytes=100_000, ping_interval_s=0.02, explains_cache=True)
    return ServerContext(engine, models, ServerLifecycle(), options)


@pytest.fixture
def app(context: ServerContext) -> Starlette:
    return create_app(context)
