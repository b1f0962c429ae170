"""Sessions as chat requests meet them: who names one, what goes in front, what an answer leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from asgi_client import Answer, get, post, start
from prometheus_client.parser import text_string_to_metric_families
from scripted_engine import ScriptedEngine
from starlette.applications import Starlette

from ferrum.core.request import ChatPrompt, FinishReason
from ferrum.server.app import create_app
from ferrum.server.server_context import ServerContext
from ferrum.server.session_cache import SessionCache

PATH = "/v1/chat/completions"


@pytest.fixture
def talking(context: ServerContext) -> Starlette:
    return create_app(replace(context, sessions=SessionCache()))


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _contents(engine: ScriptedEngine) -> list[str]:
    """What the engine was asked last."""
    prompt = engine.requests[-1].prompt
    assert isinstance(prompt, ChatPrompt)
    return [message["content"] for message in prompt.messages]


async def _say(app: Starlette, text: str, headers: dict[str, str] | None = None, **fields: Any) -> Answer:
    body = {"messages": [_user(text)], **fields}
    return await start(app, PATH, body, {"X-Ferrum-Session": "s"} if headers is None else headers).finished()


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_the_next_turn_begins_with_question_and_answer_of_the_last(
    talking: Starlette, engine: ScriptedEngine, is_streamed: bool
) -> None:
    first = await _say(talking, "1", stream=is_streamed)
    second = await _say(talking, "2", stream=is_streamed)
    assert _contents(engine) == ["1", "Hello", "2"]
    assert [each.headers["x-ferrum-session-messages"] for each in (first, second)] == ["0", "2"]


async def test_the_header_wins_over_the_metadata(talking: Starlette, engine: ScriptedEngine) -> None:
    metadata = {"ferrum_session_id": "s"}
    await _say(talking, "1", {}, metadata=metadata)
    await _say(talking, "2", {"X-Ferrum-Session": "other"}, metadata=metadata)
    assert _contents(engine) == ["2"]
    await _say(talking, "3", {}, metadata=metadata)
    assert _contents(engine) == ["1", "Hello", "3"]


async def test_a_request_without_a_session_is_as_it_was(talking: Starlette, engine: ScriptedEngine) -> None:
    await _say(talking, "1")
    for metadata in (None, {}, {"topic": "x"}, "odd"):
        answer = await _say(talking, "2", {}, metadata=metadata)
        assert answer.status == 200
        assert "x-ferrum-session-messages" not in answer.headers
        assert _contents(engine) == ["2"]


async def test_another_keys_session_of_the_same_name_is_another(
    talking: Starlette, engine: ScriptedEngine
) -> None:
    for key in ("one", "two"):
        await _say(talking, key, {"X-Ferrum-Session": "s", "Authorization": f"Bearer {key}"})
    assert _contents(engine) == ["two"]


@pytest.mark.parametrize("reason", [FinishReason.CANCELLED, FinishReason.TIMEOUT, FinishReason.ERROR])
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_answer_that_was_cut_short_leaves_nothing(
    talking: Starlette, engine: ScriptedEngine, is_streamed: bool, reason: FinishReason
) -> None:
    engine.finish_reason = reason
    await _say(talking, "1", stream=is_streamed)
    engine.finish_reason = FinishReason.LENGTH
    await _say(talking, "1", stream=is_streamed)
    await _say(talking, "2")
    assert _contents(engine) == ["1", "Hello", "2"]


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("fault", ["refusal", "failure", "leaves"])
async def test_a_turn_that_fails_or_loses_its_client_leaves_nothing_and_holds_nothing_up(
    talking: Starlette, engine: ScriptedEngine, is_streamed: bool, fault: str
) -> None:
    if fault == "leaves":
        engine.released.clear()
        call = start(
            talking, PATH, {"messages": [_user("1")], "stream": is_streamed}, {"X-Ferrum-Session": "s"}
        )
        while not engine.num_running:
            await call.sent() if is_streamed else await _soon()
        call.leave()
        await call.finished()
        engine.released.set()
    else:
        setattr(engine, fault, RuntimeError("broken"))
        await _say(talking, "1", stream=is_streamed)
        setattr(engine, fault, None)
    assert (await _say(talking, "2", stream=is_streamed)).status == 200
    assert _contents(engine) == ["2"]


async def _soon() -> None:
    await asyncio.sleep(0.001)


async def test_a_second_turn_at_the_same_time_is_told_to_wait(
    talking: Starlette, engine: ScriptedEngine
) -> None:
    engine.released.clear()
    first = start(talking, PATH, {"messages": [_user("1")], "stream": True}, {"X-Ferrum-Session": "s"})
    await first.sent()
    second = await _say(talking, "2")
    assert (second.status, second.json["error"]["code"]) == (409, "session_busy")
    engine.released.set()
    await first.finished()
    assert (await _say(talking, "2")).status == 200
    assert _contents(engine) == ["1", "Hello", "2"]


@pytest.mark.parametrize(
    ("headers", "fields", "param"),
    [
        ({"X-Ferrum-Session": ""}, {}, "X-Ferrum-Session"),
        ({"X-Ferrum-Session": "x" * 129}, {}, "X-Ferrum-Session"),
        ({}, {"metadata": {"ferrum_session_id": 7}}, "metadata.ferrum_session_id"),
        ({}, {"metadata": {"ferrum_session_id": "\n"}}, "metadata.ferrum_session_id"),
        (None, {"n": 2}, "n"),
        (None, {"continue_final_message": True}, "continue_final_message"),
        (None, {"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        (None, {"messages": []}, "messages"),
    ],
)
async def test_what_cannot_be_a_turn_is_refused_by_the_field_the_client_sent(
    talking: Starlette, headers: dict[str, str] | None, fields: dict[str, Any], param: str
) -> None:
    await _say(talking, "1")
    answer = await _say(talking, "2", headers, **fields)
    assert (answer.status, answer.json["error"]["param"]) == (400, param)
    assert (await _say(talking, "3")).headers["x-ferrum-session-messages"] == "2"


async def test_a_server_without_sessions_refuses_rather_than_forgets(app: Starlette) -> None:
    answer = await _say(app, "1")
    assert answer.status == 400
    assert "--session-cache memory" in answer.json["error"]["message"]
    assert (await get(app, "/v1/sessions/s")).status == 400


async def test_a_session_can_be_looked_at_and_forgotten(talking: Starlette, engine: ScriptedEngine) -> None:
    assert (await get(talking, "/v1/sessions/s")).json["error"]["code"] == "session_not_found"
    await _say(talking, "1")
    shown = await get(talking, "/v1/sessions/s")
    assert shown.json == {"object": "session", "id": "s", "num_messages": 2, "num_tokens": 5}
    other = {"Authorization": "Bearer other"}
    assert (await get(talking, "/v1/sessions/s", other, "DELETE")).status == 404
    assert (await get(talking, "/v1/sessions/s", method="DELETE")).json["deleted"] is True
    await _say(talking, "2")
    assert _contents(engine) == ["2"]


def _samples(answer: Answer) -> dict[str, float]:
    families: Sequence[Any] = list(text_string_to_metric_families(answer.body.decode()))
    found = {sample.name: sample.value for family in families for sample in family.samples}
    return {
        name.removeprefix("ferrum_session_cache_"): value
        for name, value in found.items()
        if "session" in name
    }


async def test_metrics_count_sessions(app: Starlette, talking: Starlette) -> None:
    zero = {"hits_total": 0, "misses_total": 0, "evictions_total": 0, "entries": 0, "tokens": 0}
    assert _samples(await get(app, "/metrics")) == zero
    await _say(talking, "1")
    await _say(talking, "2")
    assert _samples(await get(talking, "/metrics")) == {
        **zero,
        "hits_total": 1,
        "misses_total": 1,
        "entries": 1,
        "tokens": 5,
    }


async def test_plain_completions_have_no_sessions(talking: Starlette, engine: ScriptedEngine) -> None:
    assert (
        await post(talking, "/v1/completions", {"prompt": "x", "metadata": {"ferrum_session_id": "s"}})
    ).status == 200
    assert (await get(talking, "/v1/sessions/s")).status == 404
