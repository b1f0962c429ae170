import pytest
from asgi_client import get, start
from prometheus_client.parser import text_string_to_metric_families
from scripted_engine import ScriptedEngine
from starlette.applications import Starlette

from ferrum.core.errors import InvalidConfig
from ferrum.server.app import create_app
from ferrum.server.served_models import ServedModels
from ferrum.server.server_context import ServerContext
from ferrum.server.server_options import ServerOptions


async def test_models_lists_every_served_name_with_its_context(app: Starlette) -> None:
    answer = await get(app, "/v1/models")

    assert [card["id"] for card in answer.json["data"]] == ["tiny", "tiny-alias", "org/tiny"]
    assert answer.json["data"][0]["max_model_len"] == 64
    assert (await get(app, "/v1/models/org/tiny")).json["id"] == "org/tiny"
    assert (await get(app, "/v1/models/else")).status == 404


async def test_health_is_red_with_a_reason_when_the_engine_is_dead(
    app: Starlette, engine: ScriptedEngine
) -> None:
    assert (await get(app, "/health")).status == 200
    assert (await get(app, "/health", method="HEAD")).status == 200
    engine.death_reason = "the engine thread ended"
    for path in ("/health", "/ready"):
        answer = await get(app, path)
        assert answer.status == 503
        assert answer.json["reason"] == "the engine thread ended"


async def test_draining_server_is_alive_but_not_ready(app: Starlette, context: ServerContext) -> None:
    assert (await get(app, "/ready")).status == 200
    context.lifecycle.start_draining()
    assert (await get(app, "/ready")).status == 503
    assert (await get(app, "/health")).status == 200


async def test_metrics_are_prometheus_text_before_any_request(app: Starlette) -> None:
    answer = await get(app, "/metrics")

    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(answer.body.decode()))
    assert "ferrum_engine_requests" in {family.name for family in families}
    assert b"nan" not in answer.body.lower().replace(b"ferrum", b"")


async def test_cross_origin_headers_are_absent_unless_configured(app: Starlette) -> None:
    answer = await get(app, "/health", {"Origin": "http://page.example"})

    assert not any(name.startswith("access-control") for name in answer.headers)


async def test_cross_origin_headers_are_on_preflights_streams_and_errors(context: ServerContext) -> None:
    options = ServerOptions(cors_origins=("*",))
    app = create_app(ServerContext(context.engine, context.models, context.lifecycle, options))
    origin = {"Origin": "http://page.example"}
    preflight = await get(
        app,
        "/v1/chat/completions",
        {
            **origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type",
        },
        method="OPTIONS",
    )
    body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
    stream = await start(app, "/v1/chat/completions", body, origin).finished()
    error = await start(app, "/v1/chat/completions", b"{", origin).finished()

    assert preflight.status == 200
    assert "authorization" in preflight.headers["access-control-allow-headers"]
    for answer in (preflight, stream, error):
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("names", [(), ("",), ("tiny", " ")])
def test_a_model_needs_a_name_that_clients_can_ask_for(names: tuple[str, ...]) -> None:
    with pytest.raises(InvalidConfig, match="served_model_name"):
        ServedModels(names, 0, 64)
