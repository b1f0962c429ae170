"""What the two routes say of the prefix cache, and what a request may say to it."""

from dataclasses import replace
from typing import Any

import pytest
from asgi_client import post
from scripted_engine import ScriptedEngine
from starlette.applications import Starlette

from ferrum.server.app import create_app
from ferrum.server.server_context import ServerContext

ROUTES = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    ("/v1/completions", {"prompt": "hi"}),
]
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
EXPLANATION = {
    "end": "different_token",
    "prompt_tokens": 3,
    "cached_tokens": 2,
    "position": 2,
    "token_id": 5,
    "cached_token_id": 6,
}


@pytest.mark.parametrize(("path", "content"), ROUTES)
async def test_usage_counts_cached_tokens(app: Starlette, path: str, content: dict[str, Any]) -> None:
    whole = await post(app, path, content)
    streamed = await post(app, path, content | STREAMED)
    assert whole.json["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
    assert streamed.objects[-1]["usage"] == whole.json["usage"]
    assert "cache_explanations" not in whole.json | streamed.objects[-1]


async def test_cached_tokens_of_several_prompts_are_summed(app: Starlette) -> None:
    answer = await post(app, "/v1/completions", {"prompt": ["A", "B", "C"]} | STREAMED)
    assert answer.objects[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 6}


@pytest.mark.parametrize(("path", "content"), ROUTES)
async def test_a_salt_reaches_the_engine(
    app: Starlette, engine: ScriptedEngine, path: str, content: dict[str, Any]
) -> None:
    await post(app, path, content | {"cache_salt": "mine"})
    await post(app, path, content | {"cache_salt": None})
    assert [request.cache_salt for request in engine.requests] == ["mine", None]


@pytest.mark.parametrize(("path", "content"), ROUTES)
@pytest.mark.parametrize("salt", ["", 5, True, ["a"], {}])
async def test_a_salt_that_is_no_text_is_refused_by_name(
    app: Starlette, path: str, content: dict[str, Any], salt: object
) -> None:
    answer = await post(app, path, content | {"cache_salt": salt})
    assert (answer.status, answer.json["error"]["param"]) == (400, "cache_salt")


@pytest.mark.parametrize(("path", "content"), ROUTES)
async def test_an_explanation_comes_with_the_usage(
    app: Starlette, path: str, content: dict[str, Any]
) -> None:
    whole = await post(app, path, content | {"explain_cache": True})
    streamed = await post(app, path, content | {"explain_cache": True} | STREAMED)
    assert whole.json["cache_explanations"] == [EXPLANATION]
    assert streamed.objects[-1]["cache_explanations"] == [EXPLANATION]


@pytest.mark.parametrize(("path", "content"), ROUTES)
async def test_explanations_are_refused_unless_the_server_allows_them(
    context: ServerContext, path: str, content: dict[str, Any]
) -> None:
    options = replace(context.options, explains_cache=False)
    app = create_app(replace(context, options=options))
    refused = await post(app, path, content | {"explain_cache": True})
    assert (refused.status, refused.json["error"]["param"]) == (400, "explain_cache")
    assert "--debug-prefix-cache" in refused.json["error"]["message"]
    assert (await post(app, path, content | {"explain_cache": False})).status == 200
