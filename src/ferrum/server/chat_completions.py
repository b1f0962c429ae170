"""POST /v1/chat/completions, streamed and whole."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ferrum.core.errors import FerrumError
from ferrum.core.request import InferenceResult, StreamChunk
from ferrum.server.constraint_fields import constraint_wire_name
from ferrum.server.core_to_wire import end_fields, joined, usage_fields
from ferrum.server.disconnect import run_while_connected
from ferrum.server.engine_door import ChunkStream
from ferrum.server.error_responses import answering_errors, error_response, json_response
from ferrum.server.logprob_objects import chat_logprobs, prompt_logprobs
from ferrum.server.request_body import read_json_object
from ferrum.server.server_context import ServerContext
from ferrum.server.sessions import ChatTurn, begin_turn
from ferrum.server.sse import DONE, EventStreamResponse, data_event
from ferrum.server.tenant import tenant_of
from ferrum.server.unsupported_fields import CHAT_FIELDS, refuse_unsupported
from ferrum.server.wire_schemas import ChatCompletionBody, parse_body
from ferrum.server.wire_to_core import chat_prompt, chat_sampling, inference_request

PATH = "/v1/chat/completions"

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

    return [Route(PATH, create_chat_completion, methods=["POST"])]


def _wire_names(body: ChatCompletionBody) -> dict[str, str]:
    names = {"prompt": "messages", "logprobs": "top_logprobs", "constraint": constraint_wire_name(body)}
    if body.max_completion_tokens is not None:
        names["max_tokens"] = "max_completion_tokens"
    return names


async def _answer(context: ServerContext, request: Request, body: ChatCompletionBody) -> Response:
    completion = _Completion(
        id=f"chatcmpl-{uuid.uuid4().hex}", created=int(time.time()), model=context.models.resolve(body.model)
    )
    sampling = chat_sampling(body, context.sampling_defaults)
    tenant, turn = tenant_of(request, body), begin_turn(context, request, body)
    try:
        prompt = replace(chat_prompt(body), messages=turn.messages)
        inference = inference_request(completion.id, prompt, sampling, body, context.options, tenant)
        if not body.stream:
            result = await run_while_connected(request.receive, context.engine.infer(inference))
            turn.end(result)
            return json_response(completion.whole(result, sampling.prompt_logprobs), headers=turn.headers)
        chunks = await run_while_connected(request.receive, context.engine.open_stream(inference))
    except BaseException:
        turn.abandon()
        raise
    has_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    events = _events(completion, chunks, turn, has_usage=has_usage)
    role: dict[str, object] = {"role": "assistant", "content": ""}
    opening = b"".join(completion.chunk(StreamChunk("", index=index), role) for index in range(sampling.n))
    response = EventStreamResponse(opening, [chunks], events, context.options.ping_interval_s)
    response.headers.update(turn.headers)
    return response


async def _events(
    completion: _Completion, chunks: ChunkStream, turn: ChatTurn, *, has_usage: bool
) -> AsyncGenerator[bytes, None]:
    results: dict[int, InferenceResult] = {}
    try:
        async for chunk in chunks:
            if chunk.text or chunk.logprobs:
                yield completion.chunk(chunk, {"content": chunk.text})
            if chunk.result is not None:
                results[chunk.index] = chunk.result
                # Before the client hears of the end: its next turn may come at once.
                turn.end(chunk.result)
                yield completion.chunk(chunk, {})
    finally:
        turn.abandon()
    if has_usage:
        yield completion.usage_chunk(joined([results[index] for index in sorted(results)]))
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

    def whole(self, result: InferenceResult, num_prompt_top: int | None) -> dict[str, object]:
        choices: list[dict[str, object]] = [
            {
                "index": index,
                "message": {"role": "assistant", "content": answer.text, "refusal": None},
                "logprobs": None if answer.logprobs is None else chat_logprobs(answer.logprobs),
                **end_fields(answer),
            }
            for index, answer in enumerate(result.answers)
        ]
        prompt: dict[str, object] = {}
        if num_prompt_top is not None:
            prompt["prompt_logprobs"] = prompt_logprobs(result.prompt_logprobs or (), num_prompt_top)
        return {**self._object("chat.completion", choices), **prompt, **usage_fields([result])}

    def chunk(self, chunk: StreamChunk, delta: dict[str, object]) -> bytes:
        end = _OPEN if chunk.result is None else end_fields(chunk.result)
        logprobs = chat_logprobs(chunk.logprobs) if chunk.logprobs else None
        choice = {"index": chunk.index, "delta": delta, "logprobs": logprobs, **end}
        return data_event(self._object("chat.completion.chunk", [choice]))

    def usage_chunk(self, result: InferenceResult) -> bytes:
        whole = self._object("chat.completion.chunk", [])
        return data_event({**whole, **usage_fields([result])})
