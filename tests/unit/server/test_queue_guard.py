"""A full queue refuses before anything of a request is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from asgi_client import get, post, start
from scripted_engine import ScriptedEngine
from starlette.applications import Starlette

from ferrum.server import request_body
from ferrum.server.app import create_app
from ferrum.server.server_context import ServerContext

CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"
BODY = {"messages": [{"role": "user", "content": "hi"}], "prompt": "hi"}


@pytest.fixture
def full(engine: ScriptedEngine) -> ScriptedEngine:
    engine.is_full = True
    return engine


@pytest.mark.parametrize("path", [CHAT, PLAIN])
@pytest.mark.parametrize(
    "content",
    [BODY, {**BODY, "stream": True}, b"{:", {"model": "gpt-unknown"}, b"x" * 99_999],
    ids=["whole", "stream", "broken", "wrong", "long"],
)
async def test_a_full_queue_refuses_whatever_was_sent(
    app: Starlette, full: ScriptedEngine, path: str, content: Any
) -> None:
    call = start(app, path, content)
    answer = await call.finished()

    assert (answer.status, answer.json["error"]["code"]) == (429, "queue_full")
    assert answer.headers["retry-after"] == "3"
    assert "connection" not in answer.headers
    assert call.num_body_parts_read == 1
    assert not full.requests


@pytest.mark.parametrize("path", [CHAT, PLAIN])
async def test_a_request_passes_when_there_is_room_again(
    app: Starlette, full: ScriptedEngine, path: str
) -> None:
    assert (await post(app, path, BODY)).status == 429
    full.is_full = False
    fields = {"messages"} if path == CHAT else {"prompt"}
    assert (await post(app, path, {name: BODY[name] for name in fields})).status == 200


async def test_a_full_queue_refuses_no_other_question(app: Starlette, full: ScriptedEngine) -> None:
    for path in ("/health", "/ready", "/metrics", "/v1/models"):
        assert (await get(app, path)).status == 200
    assert (await get(app, CHAT)).status == 405


async def test_a_server_that_ends_says_so_although_it_is_full(
    app: Starlette, context: ServerContext, full: ScriptedEngine
) -> None:
    context.lifecycle.start_draining()

    answer = await post(app, CHAT, BODY)

    assert (answer.status, answer.json["error"]["code"]) == (503, "shutting_down")


async def test_a_browser_may_read_the_refusal(context: ServerContext, full: ScriptedEngine) -> None:
    options = replace(context.options, cors_origins=("https://there",))
    app = create_app(replace(context, options=options))

    answer = await start(app, CHAT, BODY, {"Origin": "https://there"}).finished()

    assert answer.status == 429
    assert answer.headers["access-control-allow-origin"] == "https://there"


async def test_a_client_that_never_ends_its_body_is_refused_and_closed(
    app: Starlette, full: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_body, "DISCARD_S", 0.05)
    call = start(app, CHAT, b"{")
    call.num_body_parts_read = 1  # It was read, and the end does not come.

    answer = await call.finished()

    assert (answer.status, answer.headers["connection"]) == (429, "close")


async def test_a_client_that_leaves_while_it_is_refused_harms_nobody(
    app: Starlette, full: ScriptedEngine
) -> None:
    call = start(app, CHAT, b"{")
    call.num_body_parts_read = 1
    call.leave()

    assert (await call.finished()).status == 0
