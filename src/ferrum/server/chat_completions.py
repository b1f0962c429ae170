"""POST /v1/chat/completions, streamed and whole."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ferrum.core.errors import FerrumError, InvalidRequest
from ferrum.core.request import InferenceResult
from ferrum.server.constraint_fields import constraint_wire_name
from ferrum.server.core_to_wire import end_fields, usage_fields
from ferrum.server.disconnect import run_while_connected
from ferrum.server.engine_door import ChunkStream
from ferrum.server.error_responses import answering_errors, error_response, json_response
from ferrum.server.request_body import read_json_object
from ferrum.server.server_context import ServerContext
from ferrum.server.sse import DONE, EventStreamResponse, data_event
from ferrum.server.tenant import tenant_of
from ferrum.server.unsupported_fields import CHAT_FIELDS, refuse_unsupported
from ferrum.server.wire_schemas import ChatCompletionBody, parse_body
from ferrum.server.wire_to_core import chat_prompt, inference_request, sampling_params

_OPEN: Mapping[str, object] = {"finish_reason": None}


def chat_completions_routes(context: ServerContext) -> list[Route]:
    """The route over ``context``."""

    @answering_errors
    async def create_chat_completion(request: Request) -> Response:
        content = await read_json_object(request, context.options.max_body_bytes)
        context.lifecycle.require_open()
        refuse_unsupported(CHAT_FIELDS, content)
        body = parse_body(ChatCompletionBody, content)
        context.unknown_fields.note(body.model_extra or {})
        try:
            return await _answer(context, request, body)
        except FerrumError as error:
            return error_response(error, _wire_names(body))

    return [Route("/v1/chat/completions", create_chat_completion, methods=["POST"])]


def _wire_names(body: ChatCompletionBody) -> dict[str, str]:
    names = {"prompt": "messages", "constraint": constraint_wire_name(body)}
    if body.max_completion_tokens is not None:
        names["max_tokens"] = "max_completion_tokens"
    return names


async def _answer(context: ServerContext, request: Request, body: ChatCompletionBody) -> Response:
    completion = _Completion(
        id=f"chatcmpl-{uuid.uuid4().hex}", created=int(time.time()), model=context.models.resolve(body.model)
    )
    max_tokens = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    if max_tokens == 0:
        raise InvalidRequest("must be at least 1: a chat without an answer is none", param="max_tokens")
    sampling = sampling_params(body, max_tokens, context.sampling_defaults)
    tenant = tenant_of(request, body)
    inference = inference_request(completion.id, chat_prompt(body), sampling, body, context.options, tenant)
    if not body.stream:
        result = await run_while_connected(request.receive, context.engine.infer(inference))
        return json_response(completion.whole(result))
    chunks = await run_while_connected(request.receive, context.engine.open_stream(inference))
    has_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    events = _events(completion, chunks, has_usage=has_usage)
    opening = completion.chunk({"role": "assistant", "content": ""}, _OPEN)
    return EventStreamResponse(opening, [chunks], events, context.options.ping_interval_s)


async def _events(
    completion: _Completion, chunks: ChunkStream, *, has_usage: bool
) -> AsyncGenerator[bytes, None]:
    async for chunk in chunks:
        if chunk.text:
            yield completion.chunk({"content": chunk.text}, _OPEN)
        if chunk.result is not None:
            yield completion.chunk({}, end_fields(chunk.result))
            if has_usage:
                yield completion.usage_chunk(chunk.result)
            yield DONE


@dataclass(frozen=True, slots=True)
class _Completion:
    """The fields that all objects of one answer share. ``created`` is in Unix seconds."""

    id: str
    created: int
    model: str

    def _object(self, kind: str, choices: list[dict[str, object]]) -> dict[str, object]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }

    def whole(self, result: InferenceResult) -> dict[str, object]:
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": result.text, "refusal": None},
            "logprobs": None,
            **end_fields(result),
        }
        return {**self._object("chat.completion", [choice]), **usage_fields([result])}

    def chunk(self, delta: dict[str, object], end: Mapping[str, object]) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, **end}
        return data_event(self._object("chat.completion.chunk", [choice]))

    def usage_chunk(self, result: InferenceResult) -> bytes:
        whole = self._object("chat.completion.chunk", [])
        return data_event({**whole, **usage_fields([result])})
