"""The routes over a real engine: every way an answer ends, the same streamed and whole, to the last count."""

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgi_client import post
from starlette.applications import Starlette

from ferrum.assembly.engine_builder import EngineBuilder
from ferrum.core.request import ChatPrompt
from ferrum.core.step import SamplingInstruction
from ferrum.server.app import create_app
from ferrum.server.lifecycle import ServerLifecycle
from ferrum.server.served_models import ServedModels
from ferrum.server.server_context import ServerContext
from ferrum.server.server_options import ServerOptions
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.testing.scripted_executor import History, ScriptedExecutor

EOS = ByteTokenizer.EOS_ID
SAID = [*"Grüße, 🙂🙂🙂🙂🙂! please".encode(), EOS]
TEXT = bytes(SAID[:-1]).decode()
ROUTES = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}]}),
    ("/v1/completions", {"prompt": "hello"}),
]


def say(request_id: str, history: History, sampling: SamplingInstruction) -> int:
    """The same whatever is asked: SAID, after a prompt of five tokens."""
    return SAID[min(len(history) - 5, len(SAID) - 1)]


def encode_chat(prompt: ChatPrompt) -> list[int]:
    return list(prompt.messages[0]["content"].encode())


@pytest.fixture
async def app() -> AsyncIterator[Starlette]:
    builder = EngineBuilder().with_tokenizer(ByteTokenizer(), encode_chat)
    engine = builder.with_executor(ScriptedExecutor(choose=say)).build()
    models = ServedModels(("scripted",), created=1, context_length=engine.context_length)
    yield create_app(ServerContext(engine, models, ServerLifecycle(), ServerOptions()))
    await engine.shutdown(0.0)


async def both(
    app: Starlette, path: str, content: dict[str, Any]
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Text, last choice and usage of an answer that reads the same streamed and whole."""
    whole = await post(app, path, content)
    streamed = await post(app, path, content | {"stream": True, "stream_options": {"include_usage": True}})
    assert (whole.status, streamed.status) == (200, 200)
    [choice] = whole.json["choices"]
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    choices = [each for chunk in streamed.objects for each in chunk["choices"]]
    pieces = [each["delta"].get("content", "") if "delta" in each else each["text"] for each in choices]
    assert "".join(pieces) == text
    [end] = [each for each in choices if each["finish_reason"] is not None]
    for name in ("finish_reason", "stop_reason"):
        assert end.get(name) == choice.get(name)
    usage = streamed.objects[-1]["usage"]
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert usage[name] == whole.json["usage"][name]
    return text, choice, usage


@pytest.mark.parametrize(("path", "content"), ROUTES)
async def test_an_answer_cut_anywhere_is_valid_and_counted_alike(
    app: Starlette, path: str, content: dict[str, Any]
) -> None:
    for max_tokens in range(1, len(SAID) + 1):
        text, choice, usage = await both(app, path, content | {"max_tokens": max_tokens})
        kept = bytes(SAID[:max_tokens][: len(SAID) - 1])
        assert text == kept.decode("utf-8", "replace")
        assert text.count("\ufffd") <= 1
        assert choice["finish_reason"] == ("stop" if max_tokens == len(SAID) else "length")
        assert "stop_reason" not in choice
        assert usage["completion_tokens"] == max_tokens


@pytest.mark.parametrize(("path", "content"), ROUTES)
async def test_stops_of_every_kind_read_alike_and_are_counted_alike(
    app: Starlette, path: str, content: dict[str, Any]
) -> None:
    ends: list[tuple[dict[str, Any], str, object]] = [
        ({"stop": "🙂🙂"}, TEXT.partition("🙂")[0], "🙂🙂"),
        ({"stop": ["please wait", "ße,"]}, "Grü", "ße,"),
        ({"stop": ["please wait"]}, TEXT, None),
        ({"stop_token_ids": [ord(",")]}, "Grüße", ord(",")),
        ({"stop_token_ids": [EOS]}, TEXT, EOS),
        ({"stop": ["<eos>"]}, TEXT, "<eos>"),
        ({}, TEXT, None),
    ]
    for (wishes, text, reason), shows in itertools.product(ends, (False, True)):
        asked = {**content, "max_tokens": 60, **wishes, "include_stop_str_in_output": shows}
        found, choice, usage = await both(app, path, asked)
        shown = {"🙂🙂": "🙂🙂", "ße,": "ße,", ord(","): ","}.get(reason, "") if shows else ""
        assert found == text + shown
        assert choice.get("stop_reason") == reason
        assert choice["finish_reason"] == "stop"
        # Whatever is shown, what was generated is counted: up to the token that ended it.
        needed = len((text + str(reason)).encode()) if reason in ("🙂🙂", "ße,") else len(text.encode()) + 1
        assert usage["completion_tokens"] == needed


@pytest.mark.parametrize(("path", "content"), ROUTES)
async def test_control_tokens_are_written_out_alike(
    app: Starlette, path: str, content: dict[str, Any]
) -> None:
    asked = {**content, "max_tokens": len(SAID) + 1, "ignore_eos": True, "skip_special_tokens": False}
    text, choice, usage = await both(app, path, asked)
    assert text == TEXT + "<eos><eos>"
    assert (choice["finish_reason"], usage["completion_tokens"]) == ("length", len(SAID) + 1)


@pytest.mark.parametrize(("path", "content"), ROUTES)
async def test_a_stop_token_outside_the_vocabulary_is_refused_before_a_stream_begins(
    app: Starlette, path: str, content: dict[str, Any]
) -> None:
    for stream in (False, True):
        answer = await post(app, path, content | {"stop_token_ids": [10**6], "stream": stream})
        assert answer.status == 400
        assert answer.headers["content-type"].startswith("application/json")
        assert answer.json["error"]["param"] == "stop_token_ids"
        assert "vocabulary" in answer.json["error"]["message"]
