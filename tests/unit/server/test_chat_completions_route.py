import asyncio

import pytest
from asgi_client import post, start
from scripted_engine import ScriptedEngine
from starlette.applications import Starlette

from ferrum.core.errors import ChatTemplateError, ContextLengthExceeded, EngineClosed, QueueFull
from ferrum.core.request import ChatPrompt

PATH = "/v1/chat/completions"
HELLO = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}


async def test_whole_answer_is_a_chat_completion(app: Starlette) -> None:
    answer = await post(app, PATH, HELLO)

    assert answer.status == 200
    assert answer.json["object"] == "chat.completion"
    assert answer.json["model"] == "tiny"
    [choice] = answer.json["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Hello", "refusal": None}
    assert choice["finish_reason"] == "stop"
    assert answer.json["usage"]["total_tokens"] == 5


async def test_stream_opens_with_role_and_ends_with_one_finish_reason_and_one_done(app: Starlette) -> None:
    answer = await post(app, PATH, {**HELLO, "stream": True})

    assert answer.headers["content-type"].startswith("text/event-stream")
    deltas = [chunk["choices"][0]["delta"] for chunk in answer.objects]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "Hel"}, {"content": "lo"}, {}]
    assert [chunk["choices"][0]["finish_reason"] for chunk in answer.objects] == [None, None, None, "stop"]
    assert {chunk["object"] for chunk in answer.objects} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in answer.objects}) == 1
    assert answer.events.count("[DONE]") == 1
    assert answer.events[-1] == "[DONE]"
    assert answer.is_complete


async def test_stream_reports_usage_only_when_asked(app: Starlette) -> None:
    without = await post(app, PATH, {**HELLO, "stream": True})
    asked = await post(app, PATH, {**HELLO, "stream": True, "stream_options": {"include_usage": True}})

    assert all("usage" not in chunk for chunk in without.objects)
    assert asked.objects[-1]["choices"] == []
    assert asked.objects[-1]["usage"]["completion_tokens"] == 2
    assert sum("usage" in chunk for chunk in asked.objects) == 1


async def test_stream_sends_headers_at_once_and_pings_until_the_first_token(
    app: Starlette, engine: ScriptedEngine
) -> None:
    engine.released.clear()
    call = start(app, PATH, {**HELLO, "stream": True})
    await call.sent()
    assert call.answer.status == 200
    while b": ping\n\n" not in call.answer.parts:
        await call.sent()
    engine.released.set()
    answer = await call.finished()

    content_at = next(i for i, part in enumerate(answer.parts) if b"Hel" in part)
    assert b": ping\n\n" not in answer.parts[content_at:]
    assert answer.events[-1] == "[DONE]"


async def test_error_in_mid_stream_is_one_event_and_no_done(app: Starlette, engine: ScriptedEngine) -> None:
    engine.failure = EngineClosed()
    answer = await post(app, PATH, {**HELLO, "stream": True})

    assert answer.status == 200
    assert answer.objects[-1]["error"]["code"] == "shutting_down"
    assert sum("error" in chunk for chunk in answer.objects) == 1
    assert "[DONE]" not in answer.events
    assert answer.is_complete


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_our_own_bug_is_a_500_without_its_traceback(
    app: Starlette, engine: ScriptedEngine, is_streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    engine.refusal = KeyError("secret detail")
    answer = await post(app, PATH, {**HELLO, "stream": is_streamed})

    assert answer.status == 500
    assert answer.json["error"]["type"] == "internal_server_error"
    assert b"secret" not in answer.body
    assert "secret detail" in caplog.text


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(
    ("refusal", "status", "code", "param"),
    [
        (ContextLengthExceeded(64, 80, 1), 400, "context_length_exceeded", "messages"),
        (ContextLengthExceeded(64, 10, 60), 400, "context_length_exceeded", "max_tokens"),
        (ChatTemplateError("roles must alternate"), 400, "chat_template_error", "messages"),
        (QueueFull(8, 8, 1.2), 429, "queue_full", None),
        (EngineClosed(), 503, "shutting_down", None),
    ],
)
async def test_refusals_are_json_even_when_a_stream_was_asked_for(
    app: Starlette,
    engine: ScriptedEngine,
    is_streamed: bool,
    refusal: Exception,
    status: int,
    code: str,
    param: str | None,
) -> None:
    engine.refusal = refusal
    answer = await post(app, PATH, {**HELLO, "stream": is_streamed})

    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["error"]["code"] == code
    assert answer.json["error"]["param"] == param
    assert answer.headers.get("retry-after") == ("2" if status == 429 else None)


async def test_errors_name_the_field_the_client_used(app: Starlette, engine: ScriptedEngine) -> None:
    answer = await post(app, PATH, {**HELLO, "max_completion_tokens": 0, "max_tokens": 5})

    assert answer.status == 400
    assert answer.json["error"]["param"] == "max_completion_tokens"
    assert answer.json["error"]["message"].startswith("max_completion_tokens: ")


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_request_is_cancelled_when_its_client_leaves_before_the_first_token(
    app: Starlette, engine: ScriptedEngine, is_streamed: bool
) -> None:
    engine.released.clear()
    call = start(app, PATH, {**HELLO, "stream": is_streamed})
    while not engine.num_running:
        await asyncio.sleep(0.001)
    call.leave()
    await call.finished()

    assert (engine.num_running, engine.num_cancelled) == (0, 1)


async def test_request_is_cancelled_when_its_client_leaves_in_mid_stream(
    app: Starlette, engine: ScriptedEngine
) -> None:
    engine.pieces = ("a",) * 100_000
    call = start(app, PATH, {**HELLO, "stream": True})
    while not any(b'"a"' in part for part in call.answer.parts):
        await call.sent()
    call.leave()
    answer = await call.finished()

    assert (engine.num_running, engine.num_cancelled) == (0, 1)
    assert len(answer.parts) < 50_000


async def test_newer_name_of_max_tokens_wins(app: Starlette, engine: ScriptedEngine) -> None:
    await post(app, PATH, {**HELLO, "max_completion_tokens": 9, "max_tokens": 5})

    assert engine.requests[0].sampling.max_tokens == 9


async def test_null_means_default_everywhere(app: Starlette, engine: ScriptedEngine) -> None:
    names = "stream stream_options max_tokens max_completion_tokens temperature top_p top_k min_p seed stop n"
    nulls = dict.fromkeys([*names.split(), "logit_bias", "tools", "response_format", "logprobs", "model"])
    await post(app, PATH, {**HELLO, **nulls})
    await post(app, PATH, HELLO)

    assert engine.requests[0].sampling == engine.requests[1].sampling


async def test_sampling_fields_reach_the_engine(app: Starlette, engine: ScriptedEngine) -> None:
    fields = {
        "temperature": 0,
        "top_p": 0.5,
        "top_k": -1,
        "min_p": 0.1,
        "seed": 3,
        "stop": "x",
        "ignore_eos": True,
    }
    await post(app, PATH, {**HELLO, **fields})

    sampling = engine.requests[0].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0, 0.5, 0, 0.1)
    assert (sampling.seed, sampling.stop, sampling.ignore_eos) == (3, ("x",), True)


async def test_unknown_fields_are_ignored_and_logged_once(
    app: Starlette, engine: ScriptedEngine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    extra = {"store": True, "metadata": {}, "reasoning_effort": "low", "service_tier": "auto"}
    message = {"role": "user", "content": "hi", "name": "n", "id": "1", "audio": None, "refusal": None}
    for _ in range(2):
        answer = await post(app, PATH, {"messages": [message], **extra})
        assert answer.status == 200

    assert caplog.text.count("'store'") == 1


async def test_last_assistant_message_is_continued_only_on_request(
    app: Starlette, engine: ScriptedEngine
) -> None:
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "The answer"}]
    flags = {"continue_final_message": True, "add_generation_prompt": False}
    await post(app, PATH, {"messages": messages})
    await post(app, PATH, {"messages": messages, **flags})
    both = await post(app, PATH, {"messages": messages, **flags, "add_generation_prompt": True})

    prompts = [request.prompt for request in engine.requests]
    assert [isinstance(p, ChatPrompt) and p.continue_final_message for p in prompts] == [False, True]
    assert both.status == 400


async def test_draining_server_refuses_new_work_and_closes_the_connection(app: Starlette, context) -> None:
    context.lifecycle.start_draining()
    answer = await post(app, PATH, HELLO)

    assert answer.status == 503
    assert answer.headers["connection"] == "close"
