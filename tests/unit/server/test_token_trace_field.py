"""What a request says to have evidence of its tokens, and where the answer carries it."""

from dataclasses import replace
from typing import Any

import pytest
from asgi_client import post
from scripted_engine import ScriptedEngine
from starlette.applications import Starlette

from ferrum.core.request import FinishReason, InferenceResult, Usage
from ferrum.core.sampling_params import SamplingParams
from ferrum.core.token_trace import trace_tokens
from ferrum.server.core_to_wire import usage_fields

ROUTES = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    ("/v1/completions", {"prompt": "hi"}),
]


@pytest.mark.parametrize(("path", "content"), ROUTES)
async def test_the_wish_reaches_the_engine(
    app: Starlette, engine: ScriptedEngine, path: str, content: dict[str, Any]
) -> None:
    for wish in (True, False, None):
        await post(app, path, content | {"token_trace": wish})
    assert [request.wants_token_trace for request in engine.requests] == [True, False, False]


@pytest.mark.parametrize(("path", "content"), ROUTES)
async def test_a_wish_that_is_no_truth_value_is_refused_by_name(
    app: Starlette, path: str, content: dict[str, Any]
) -> None:
    answer = await post(app, path, content | {"token_trace": "yes"})
    assert (answer.status, answer.json["error"]["param"]) == (400, "token_trace")


def test_traces_stand_beside_the_usage_of_those_that_have_one() -> None:
    plain = InferenceResult("a", "x", (5,), FinishReason.LENGTH, Usage(2, 1), 7)
    traced = replace(plain, token_trace=trace_tokens((3, 4), (5,), SamplingParams(), 1, 7))
    assert "token_traces" not in usage_fields([plain])
    (trace,) = usage_fields([plain, traced])["token_traces"]
    assert (trace["prompt"]["prefix"], trace["generated"]["prefix"], trace["seed"]) == ((3, 4), (5,), 7)
