"""How a client says what ends an answer and what is shown of it, and how it is told what did."""

from dataclasses import replace
from typing import Any

import pytest
from asgi_client import post
from scripted_engine import ScriptedEngine
from starlette.applications import Starlette

from ferrum.core.completion_boundary import IMMEDIATE, AfterDelimiterAndPayload, Envelope
from ferrum.core.errors import ForbiddenToken, MalformedAnswer
from ferrum.core.request import FinishReason, InferenceRequest, InferenceResult

ROUTES = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    ("/v1/completions", {"prompt": "hi"}),
]


class StoppingEngine(ScriptedEngine):
    """Its answers were ended by ``stop_reason``."""

    def __init__(self, stop_reason: int | str | None) -> None:
        super().__init__()
        self.finish_reason = FinishReason.STOP
        self.stop_reason = stop_reason

    def _result(self, request: InferenceRequest) -> InferenceResult:
        return replace(super()._result(request), stop_reason=self.stop_reason)


@pytest.fixture
async def engine(request: pytest.FixtureRequest) -> ScriptedEngine:
    return StoppingEngine(getattr(request, "param", None))


@pytest.mark.parametrize(("path", "content"), ROUTES)
async def test_stops_reach_the_engine(
    app: Starlette, engine: ScriptedEngine, path: str, content: dict[str, Any]
) -> None:
    wishes = {
        "stop": "x",
        "stop_token_ids": [3, 5],
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
        "ignore_eos": True,
    }
    await post(app, path, content | wishes)
    await post(app, path, content | dict.fromkeys(wishes))
    asked, default = (each.sampling for each in engine.requests)
    assert (asked.stop, asked.stop_token_ids) == (("x",), (3, 5))
    assert (asked.include_stop_str_in_output, asked.skip_special_tokens, asked.ignore_eos) == (
        True,
        False,
        True,
    )
    assert (default.stop, default.stop_token_ids) == ((), ())
    assert (default.include_stop_str_in_output, default.skip_special_tokens, default.ignore_eos) == (
        False,
        True,
        False,
    )


@pytest.mark.parametrize(("path", "content"), ROUTES)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stop_token_ids", [-1]),
        ("stop_token_ids", ["7"]),
        ("stop_token_ids", 7),
        ("stop_token_ids", [1] * 257),
        ("include_stop_str_in_output", "yes"),
        ("skip_special_tokens", 0),
        ("stop", ["a", ""]),
        ("stop", [1]),
    ],
)
async def test_what_is_no_stop_is_refused_by_name(
    app: Starlette, path: str, content: dict[str, Any], name: str, value: object
) -> None:
    answer = await post(app, path, content | {name: value})
    assert answer.status == 400
    assert answer.json["error"]["param"].startswith(name)


BOUNDARY = {
    "delimiter": "</think>",
    "envelope": {"open_text": "<call>", "close_text": "</call>", "max_envelopes": 3},
}


@pytest.mark.parametrize(("path", "content"), ROUTES)
async def test_a_completion_boundary_and_texts_of_tokens_reach_the_engine(
    app: Starlette, engine: ScriptedEngine, path: str, content: dict[str, Any]
) -> None:
    wishes = {
        "completion_boundary": BOUNDARY,
        "forbidden_first_texts": ["</think>"],
        "control_texts": ["<call>"],
    }
    await post(app, path, content | wishes)
    await post(app, path, content | dict.fromkeys(wishes))
    asked, default = (each.sampling for each in engine.requests)
    assert asked.completion_boundary == AfterDelimiterAndPayload("</think>", Envelope("<call>", "</call>", 3))
    assert (asked.forbidden_first_texts, asked.control_texts) == (("</think>",), ("<call>",))
    assert default.completion_boundary == IMMEDIATE
    assert (default.forbidden_first_texts, default.control_texts) == ((), ())


@pytest.mark.parametrize(("path", "content"), ROUTES)
@pytest.mark.parametrize(
    ("boundary", "param"),
    [
        ({"delimiter": ""}, "completion_boundary.delimiter"),
        (
            {"delimiter": "a", "envelope": {"open_text": "b", "close_text": "c", "max_envelopes": 0}},
            "completion_boundary.envelope.max_envelopes",
        ),
        ("</think>", "completion_boundary"),
    ],
)
async def test_what_is_no_completion_boundary_is_refused_by_name(
    app: Starlette, path: str, content: dict[str, Any], boundary: object, param: str
) -> None:
    for stream in (False, True):
        answer = await post(app, path, content | {"completion_boundary": boundary, "stream": stream})
        assert answer.status == 400
        assert answer.json["error"]["param"] == param


@pytest.mark.parametrize(
    ("error", "code"),
    [(ForbiddenToken(5), "forbidden_token"), (MalformedAnswer("two envelopes"), "malformed_answer")],
)
@pytest.mark.parametrize(("path", "content"), ROUTES)
async def test_what_the_model_did_wrong_is_an_error_with_its_own_code(
    app: Starlette, engine: ScriptedEngine, path: str, content: dict[str, Any], error: Exception, code: str
) -> None:
    engine.failure = error
    whole = await post(app, path, content)
    assert (whole.status, whole.json["error"]["code"]) == (500, code)
    assert whole.json["error"]["message"] == str(error)
    streamed = await post(app, path, content | {"stream": True})
    assert [each["error"]["code"] for each in streamed.objects if "error" in each] == [code]


@pytest.mark.parametrize("engine", ["</a>", 7, None], indirect=True)
@pytest.mark.parametrize(("path", "content"), ROUTES)
async def test_what_ended_an_answer_is_told_once_and_only_when_the_caller_named_it(
    app: Starlette, engine: StoppingEngine, path: str, content: dict[str, Any]
) -> None:
    whole = await post(app, path, content)
    streamed = await post(app, path, content | {"stream": True})
    expected = [] if engine.stop_reason is None else [engine.stop_reason]
    for choices in (
        whole.json["choices"],
        [choice for chunk in streamed.objects for choice in chunk["choices"]],
    ):
        assert [choice["stop_reason"] for choice in choices if "stop_reason" in choice] == expected
        ended = [choice for choice in choices if choice["finish_reason"] is not None]
        assert [choice["finish_reason"] for choice in ended] == ["stop"]
        assert all("stop_reason" in choice for choice in ended) == bool(expected)
