"""The table of bad requests: each gets its status and param, and the next request its usual answer."""

import gzip
from typing import Any

import orjson
import pytest
from asgi_client import get, post, start
from starlette.applications import Starlette

CHAT = "/v1/chat/completions"
PLAIN = "/v1/completions"
MESSAGES = [{"role": "user", "content": "hi"}]


def chat(**fields: Any) -> dict[str, Any]:
    return {"messages": MESSAGES, **fields}


def said(*messages: Any) -> dict[str, Any]:
    return {"messages": list(messages)}


BAD_CHATS: list[tuple[Any, int, str | None]] = [
    # Bodies that are no JSON object.
    (b"{:", 400, None),
    (b"", 400, None),
    (b"[]", 400, None),
    (b"null", 400, None),
    (b'"x"', 400, None),
    (b"3", 400, None),
    (b"true", 400, None),
    (b'{"temperature": NaN}', 400, None),
    (b"[" * 10_000 + b"]" * 10_000, 400, None),
    (b'{"messages":' * 5_000, 400, None),
    (b"\xef\xbb\xbf{}", 400, None),
    (b'{"messages":[{"role":"user","content":"\\ud800"}]}', 400, None),
    (b'{"messages":[{"role":"user","content":"\xff"}]}', 400, None),
    (b'{"messages":[' + b" " * 200_000, 413, None),
    # Messages.
    ({}, 400, "messages"),
    ({"messages": None}, 400, "messages"),
    ({"messages": "hi"}, 400, "messages"),
    ({"messages": []}, 400, "messages"),
    ({"messages": ["hi"]}, 400, "messages[0]"),
    (said({}), 400, "messages[0].role"),
    (said({"role": "wizard", "content": "x"}), 400, "messages[0].role"),
    (said({"role": ["user"], "content": "x"}), 400, "messages[0].role"),
    (said({"role": "user"}), 400, "messages[0].content"),
    (said({"role": "user", "content": None}), 400, "messages[0].content"),
    (said({"role": "user", "content": 5}), 400, "messages[0].content"),
    (said(*MESSAGES, {"role": "user", "content": {}}), 400, "messages[1].content"),
    (said({"role": "user", "content": ["x"]}), 400, "messages[0].content[0]"),
    (said({"role": "user", "content": [{"type": "text"}]}), 400, "messages[0].content[0].text"),
    (
        said({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}),
        400,
        "messages[0].content[0].type",
    ),
    # Fields with wrong values.
    (chat(model="gpt-unknown"), 404, "model"),
    (chat(model=5), 400, "model"),
    (chat(temperature=-1), 400, "temperature"),
    (chat(temperature=1e308), 400, "temperature"),
    (chat(temperature="0.5"), 400, "temperature"),
    (chat(temperature=True), 400, "temperature"),
    (chat(top_p=0), 400, "top_p"),
    (chat(top_p=1.5), 400, "top_p"),
    (chat(top_k=-2), 400, "top_k"),
    (chat(min_p=2), 400, "min_p"),
    (chat(seed=1.5), 400, "seed"),
    (b'{"messages":[{"role":"user","content":"x"}],"seed":99999999999999999999999}', 400, "seed"),
    (chat(max_tokens=0), 400, "max_tokens"),
    (chat(max_completion_tokens=0), 400, "max_completion_tokens"),
    (chat(max_tokens=-1), 400, "max_tokens"),
    (chat(max_tokens=1.5), 400, "max_tokens"),
    (chat(max_tokens=2**40), 400, "max_tokens"),
    (chat(stop=5), 400, "stop"),
    (chat(stop=""), 400, "stop"),
    (chat(stop=[1]), 400, "stop[0]"),
    (chat(stop=[None]), 400, "stop[0]"),
    (chat(stop=["x"] * 33), 400, "stop"),
    (chat(stream="yes"), 400, "stream"),
    (chat(stream_options={"include_usage": True}), 400, "stream_options"),
    (chat(stream=True, stream_options=5), 400, "stream_options"),
    (chat(stream=True, stream_options={"include_usage": 5}), 400, "stream_options.include_usage"),
    (chat(chat_template_kwargs=[]), 400, "chat_template_kwargs"),
    (chat(timeout_s=0), 400, "timeout_s"),
    (chat(timeout_s=-1.5), 400, "timeout_s"),
    (chat(timeout_s=1e308), 400, "timeout_s"),
    (chat(timeout_s="5"), 400, "timeout_s"),
    (chat(timeout_s=True), 400, "timeout_s"),
    (chat(priority=1.5), 400, "priority"),
    (chat(priority="high"), 400, "priority"),
    (chat(user=5), 400, "user"),
    (chat(add_generation_prompt=False), 400, "add_generation_prompt"),
    # Known, but not to be had here.
    (chat(n=0), 400, "n"),
    (chat(n=129), 400, "n"),
    (chat(n=1.5), 400, "n"),
    (chat(n=3, best_of=2), 400, "best_of"),
    (chat(n=True), 400, "n"),
    (chat(n=10**9, stream=True), 400, "n"),
    (chat(logprobs=5), 400, "logprobs"),
    (chat(logprobs="true"), 400, "logprobs"),
    (chat(top_logprobs=10**9), 400, "top_logprobs"),
    (chat(top_logprobs=3), 400, "top_logprobs"),
    (chat(logprobs=True, top_logprobs=21), 400, "top_logprobs"),
    (chat(logprobs=True, top_logprobs=16384), 400, "top_logprobs"),
    (chat(logprobs=True, top_logprobs=-1), 400, "top_logprobs"),
    (chat(logprobs=True, top_logprobs=True), 400, "top_logprobs"),
    (chat(prompt_logprobs=-1), 400, "prompt_logprobs"),
    (chat(prompt_logprobs=21), 400, "prompt_logprobs"),
    (chat(prompt_logprobs=1, stream=True), 400, "prompt_logprobs"),
    (chat(echo=True), 400, "echo"),
    (chat(tfs_z=0.9), 400, "tfs_z"),
    # Other servers' words for what would change the answer: never passed over in silence.
    (chat(grammar='root ::= "x"'), 400, "grammar"),
    (chat(json_schema={"type": "object"}), 400, "json_schema"),
    (chat(guided_json={"type": "object"}), 400, "guided_json"),
    (chat(n_predict=5), 400, "n_predict"),
    (chat(n_probs=5), 400, "n_probs"),
    (chat(max_new_tokens=5), 400, "max_new_tokens"),
    (chat(samplers=["top_k"]), 400, "samplers"),
    (chat(use_beam_search=True), 400, "use_beam_search"),
    (chat(length_penalty=1.2), 400, "length_penalty"),
    (chat(logits_processors=["x"]), 400, "logits_processors"),
    (chat(truncate_prompt_tokens=5), 400, "truncate_prompt_tokens"),
    (chat(chat_template="x"), 400, "chat_template"),
    (chat(documents=[{}]), 400, "documents"),
    (chat(prompt="x"), 400, "prompt"),
    # Rules of sampling.
    (chat(presence_penalty=2.1), 400, "presence_penalty"),
    (chat(frequency_penalty=-2.1), 400, "frequency_penalty"),
    (chat(repetition_penalty=0), 400, "repetition_penalty"),
    (chat(repeat_penalty=-1), 400, "repetition_penalty"),
    (chat(repeat_last_n=-2), 400, "repeat_last_n"),
    (chat(dry_penalty_last_n=1.5), 400, "dry_penalty_last_n"),
    (chat(typical_p=0), 400, "typical_p"),
    (chat(xtc_probability=1.1), 400, "xtc_probability"),
    (chat(mirostat=1), 400, "mirostat"),
    (chat(min_tokens=3, max_tokens=2), 400, "min_tokens"),
    (chat(logit_bias={"-1": 1}), 400, "logit_bias"),
    (chat(logit_bias={"abc": 1}), 400, "logit_bias"),
    (chat(logit_bias={"9" * 5000: 1}), 400, "logit_bias"),
    (chat(logit_bias={"\u0661": 1}), 400, "logit_bias"),
    (chat(logit_bias={"5": "x"}), 400, "logit_bias.5"),
    (chat(logit_bias={"5": 1e9}), 400, "logit_bias[5]"),
    (chat(logit_bias=[5]), 400, "logit_bias"),
    (chat(allowed_token_ids=[]), 400, "allowed_token_ids"),
    (chat(bad_words=[""]), 400, "bad_words"),
    (chat(bad_words="x"), 400, "bad_words"),
    (chat(response_format={"type": "json"}), 400, "response_format.type"),
    (chat(response_format="text"), 400, "response_format"),
    (chat(tools=[{"type": "function"}]), 400, "tools"),
    (chat(tool_choice="required"), 400, "tool_choice"),
    (chat(functions=[{}]), 400, "functions"),
    (chat(modalities=["audio"]), 400, "modalities"),
    (chat(audio={"voice": "x"}), 400, "audio"),
]

BAD_COMPLETIONS: list[tuple[Any, int, str | None]] = [
    (b"{", 400, None),
    ({}, 400, "prompt"),
    ({"prompt": None}, 400, "prompt"),
    ({"prompt": 5}, 400, "prompt"),
    ({"prompt": []}, 400, "prompt"),
    ({"prompt": ["a", 1]}, 400, "prompt"),
    ({"prompt": [[1], "a"]}, 400, "prompt"),
    ({"prompt": [[]]}, 400, "prompt[0]"),
    ({"prompt": [[1], ["a"]]}, 400, "prompt[1]"),
    ({"prompt": [1.5]}, 400, "prompt[0]"),
    ({"prompt": [True]}, 400, "prompt[0]"),
    ({"prompt": ["a"] * 1000}, 400, "prompt"),
    ({"prompt": ["a"] * 9}, 400, "prompt"),  # the engine never has room for more than 8
    ({"prompt": "a", "model": "other"}, 404, "model"),
    ({"prompt": "a", "max_tokens": -1}, 400, "max_tokens"),
    ({"prompt": "a", "max_tokens": 1.5}, 400, "max_tokens"),
    ({"prompt": "a", "echo": 1}, 400, "echo"),
    ({"prompt": "a", "logprobs": 21}, 400, "logprobs"),
    ({"prompt": "a", "logprobs": 16384}, 400, "logprobs"),
    ({"prompt": "a", "logprobs": -1}, 400, "logprobs"),
    ({"prompt": "a", "logprobs": True}, 400, "logprobs"),
    ({"prompt": "a", "logprobs": 1.5}, 400, "logprobs"),
    ({"prompt": "a", "prompt_logprobs": -1}, 400, "prompt_logprobs"),
    ({"prompt": "a", "prompt_logprobs": 0, "stream": True}, 400, "prompt_logprobs"),
    ({"prompt": "a", "n": 3, "best_of": 2}, 400, "best_of"),
    ({"prompt": "a", "n": 9}, 400, "n"),
    ({"prompt": "a", "best_of": 9}, 400, "best_of"),
    ({"prompt": ["a", "b", "c"], "n": 3}, 400, "prompt"),
    ({"prompt": "a", "suffix": "b"}, 400, "suffix"),
    ({"prompt": "a", "messages": [{"role": "user", "content": "x"}]}, 400, "messages"),
    ({"prompt": "a", "tools": [{}]}, 400, "tools"),
    ({"prompt": "a", "max_completion_tokens": 5}, 400, "max_completion_tokens"),
    ({"prompt": "a", "top_logprobs": 5}, 400, "top_logprobs"),
    ({"prompt": "a", "json_schema": {}}, 400, "json_schema"),
]

TABLE = [(CHAT, *row) for row in BAD_CHATS] + [(PLAIN, *row) for row in BAD_COMPLETIONS]


@pytest.mark.parametrize(("path", "content", "status", "param"), TABLE)
async def test_bad_request_gets_its_status_and_param(
    app: Starlette, path: str, content: Any, status: int, param: str | None
) -> None:
    answer = await post(app, path, content)

    assert answer.status == status
    assert set(answer.json["error"]) == {"message", "type", "param", "code"}
    assert answer.json["error"]["param"] == param
    assert answer.json["error"]["type"] == "invalid_request_error"
    assert "\n" not in answer.json["error"]["message"]
    control = await post(app, CHAT, chat(temperature=0))
    assert control.json["choices"][0]["message"]["content"] == "Hello"


HARMLESS: dict[str, Any] = {
    "n": 1,
    "logprobs": False,
    "logit_bias": {},
    "presence_penalty": 0.0,
    "frequency_penalty": 0,
    "response_format": {"type": "text"},
    "tools": [],
    "tool_choice": "auto",
    "modalities": ["text"],
    "top_k": 0,
    "stop": [],
}


async def test_values_that_ask_for_nothing_are_accepted(app: Starlette) -> None:
    assert (await post(app, CHAT, chat(**HARMLESS))).status == 200


async def test_body_over_the_declared_length_limit_is_413_and_read_to_its_end(app: Starlette) -> None:
    call = start(app, CHAT, b" " * 200_000, {"Content-Length": "200000"})
    answer = await call.finished()

    assert answer.status == 413
    assert answer.headers["connection"] == "close"
    assert call.num_body_parts_read == 1


@pytest.mark.parametrize("path", [CHAT, PLAIN])
@pytest.mark.parametrize("encoding", ["gzip", "GZip", "br", "zstd", "deflate", "identity, gzip", "aes128gcm"])
async def test_an_encoded_body_is_415_by_name_and_read_to_its_end(
    app: Starlette, path: str, encoding: str
) -> None:
    call = start(app, path, gzip.compress(orjson.dumps(chat())), {"Content-Encoding": encoding})
    answer = await call.finished()

    assert answer.status == 415
    assert answer.json["error"]["code"] == "unsupported_encoding"
    assert encoding in answer.json["error"]["message"]
    assert (answer.headers["accept-encoding"], answer.headers["connection"]) == ("identity", "close")
    assert call.num_body_parts_read == 1


@pytest.mark.parametrize("encoding", ["", "identity", " Identity ", "identity,"])
async def test_a_body_that_says_it_is_not_encoded_is_read(app: Starlette, encoding: str) -> None:
    answer = await start(app, CHAT, chat(), {"Content-Encoding": encoding}).finished()

    assert answer.status == 200


async def test_client_that_leaves_while_sending_its_body_harms_nobody(app: Starlette) -> None:
    call = start(app, CHAT, b"{}")
    call.num_body_parts_read = 1
    call.leave()
    await call.finished()

    assert (await post(app, CHAT, chat())).status == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "advice"),
    [
        ("GET", "/nowhere", 404, CHAT),
        ("POST", "/chat/completions", 404, CHAT),
        ("POST", "/v1/chat/completions/chat/completions", 404, CHAT),
        ("POST", "/v1/embeddings", 404, PLAIN),
        ("GET", CHAT, 405, "send it as POST"),
        ("DELETE", "/v1/models", 405, "GET"),
    ],
)
async def test_wrong_routes_and_methods_get_an_error_object_that_says_what_there_is(
    app: Starlette, method: str, path: str, status: int, advice: str
) -> None:
    answer = await get(app, path, method=method)

    message = answer.json["error"]["message"]
    assert answer.status == status
    assert message.startswith(f"there is no {method} {path}; ")
    assert advice in message
    assert "admin" not in message
