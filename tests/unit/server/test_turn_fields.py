"""What a request may say of its turn: how long it waits, how urgent it is, on whose account it runs."""

from typing import Any

import pytest
from asgi_client import post, start
from scripted_engine import ScriptedEngine
from starlette.applications import Starlette

from ferrum.core.errors import DeadlineExceeded, EngineStalled
from ferrum.core.request import FinishReason

ROUTES = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    ("/v1/completions", {"prompt": "hi"}),
]


@pytest.mark.parametrize(("path", "content"), ROUTES)
async def test_timeout_and_priority_reach_the_engine(
    app: Starlette, engine: ScriptedEngine, path: str, content: dict[str, Any]
) -> None:
    await post(app, path, content | {"timeout_s": 1.5, "priority": -3})
    await post(app, path, content | {"timeout_s": 30})
    await post(app, path, content | {"timeout_s": None, "priority": None})
    assert [(each.timeout_s, each.priority) for each in engine.requests] == [(1.5, -3), (30, 0), (None, 0)]


@pytest.mark.parametrize(("path", "content"), ROUTES)
@pytest.mark.parametrize(
    ("headers", "user", "tenant"),
    [
        ({}, None, None),
        ({}, "", None),
        ({}, "ann", "user:ann"),
        ({"Authorization": "Bearer "}, "ann", "user:ann"),
        ({"Authorization": "Basic abc"}, None, None),
    ],
)
async def test_the_tenant_is_the_user_where_there_is_no_key(
    app: Starlette,
    engine: ScriptedEngine,
    path: str,
    content: dict[str, Any],
    headers: dict[str, str],
    user: str | None,
    tenant: str | None,
) -> None:
    await start(app, path, content | {"user": user}, headers).finished()
    assert engine.requests[-1].tenant == tenant


async def test_a_key_is_a_tenant_whatever_its_users_and_is_not_told(
    app: Starlette, engine: ScriptedEngine
) -> None:
    path, content = ROUTES[0]
    for user, key in (("ann", "sk-1"), ("bob", "sk-1"), ("ann", "sk-2")):
        await start(app, path, content | {"user": user}, {"Authorization": f"Bearer {key}"}).finished()
    first, second, third = [each.tenant for each in engine.requests]
    assert first == second != third
    assert first is not None
    assert "sk-1" not in first


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (DeadlineExceeded("r", 2.0), 504, "timeout_error", "deadline_exceeded"),
        (EngineStalled(200.0), 503, "service_unavailable_error", "engine_stalled"),
    ],
)
async def test_late_and_stuck_requests_get_openais_error_object(
    app: Starlette,
    engine: ScriptedEngine,
    is_streamed: bool,
    error: Exception,
    status: int,
    kind: str,
    code: str,
) -> None:
    path, content = ROUTES[0]
    engine.failure = error
    engine.pieces = ()
    answer = await post(app, path, content | {"stream": is_streamed})
    if is_streamed:
        assert answer.status == 200
        assert "[DONE]" not in answer.events
        body = answer.objects[-1]["error"]
    else:
        assert answer.status == status
        body = answer.json["error"]
    assert (body["type"], body["code"], body["param"]) == (kind, code, None)
    assert body["message"] == str(error)


async def test_a_late_request_is_not_sent_again_by_openais_client(
    app: Starlette, engine: ScriptedEngine
) -> None:
    engine.failure = DeadlineExceeded("r", 2.0)
    assert (await post(app, *ROUTES[0])).headers["x-should-retry"] == "false"


async def test_what_there_is_when_time_is_over_says_why_it_ends(
    app: Starlette, engine: ScriptedEngine
) -> None:
    engine.finish_reason = FinishReason.TIMEOUT
    for path, content in ROUTES:
        whole = await post(app, path, content)
        streamed = await post(app, path, content | {"stream": True})
        assert whole.json["choices"][0]["finish_reason"] == "timeout"
        assert streamed.objects[-1]["choices"][0]["finish_reason"] == "timeout"
        assert streamed.events[-1] == "[DONE]"
