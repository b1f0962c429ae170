"""POST /v1/completions: plain text or token ids, one prompt or several, streamed and whole."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ferrum.core.errors import FerrumError, InvalidRequest
from ferrum.core.request import InferenceRequest, InferenceResult
from ferrum.server.completion_prompts import completion_prompts
from ferrum.server.constraint_fields import constraint_wire_name
from ferrum.server.core_to_wire import end_fields, usage_fields
from ferrum.server.disconnect import cancel_and_wait, run_while_connected
from ferrum.server.engine_door import ChunkStream, EngineDoor
from ferrum.server.error_responses import answering_errors, error_response, json_response
from ferrum.server.merged_streams import merge_streams
from ferrum.server.request_body import read_json_object
from ferrum.server.server_context import ServerContext
from ferrum.server.sse import DONE, EventStreamResponse, close_streams, data_event
from ferrum.server.tenant import tenant_of
from ferrum.server.unsupported_fields import COMPLETION_FIELDS, refuse_unsupported
from ferrum.server.wire_schemas import CompletionBody, parse_body
from ferrum.server.wire_to_core import COMPLETION_MAX_TOKENS, inference_request, sampling_params

_OPEN: Mapping[str, object] = {"finish_reason": None}


def completions_routes(context: ServerContext) -> list[Route]:
    """The route over ``context``."""

    @answering_errors
    async def create_completion(request: Request) -> Response:
        content = await read_json_object(request, context.options.max_body_bytes)
        context.lifecycle.require_open()
        refuse_unsupported(COMPLETION_FIELDS, content)
        body = parse_body(CompletionBody, content)
        context.unknown_fields.note(body.model_extra or {})
        try:
            return await _answer(context, request, body)
        except FerrumError as error:
            return error_response(error, {"constraint": constraint_wire_name(body)})

    return [Route("/v1/completions", create_completion, methods=["POST"])]


async def _answer(context: ServerContext, request: Request, body: CompletionBody) -> Response:
    completion = _Completion(
        id=f"cmpl-{uuid.uuid4().hex}", created=int(time.time()), model=context.models.resolve(body.model)
    )
    max_tokens = body.max_tokens if body.max_tokens is not None else COMPLETION_MAX_TOKENS
    sampling = sampling_params(body, max_tokens, context.sampling_defaults)
    prompts = completion_prompts(body.prompt)
    if len(prompts) > context.engine.request_capacity:
        raise InvalidRequest(
            f"{len(prompts)} prompts, but this server takes {context.engine.request_capacity} at once; "
            "send fewer in one request",
            param="prompt",
        )
    tenant = tenant_of(request, body)
    inferences = [
        inference_request(f"{completion.id}-{index}", prompt, sampling, body, context.options, tenant)
        for index, prompt in enumerate(prompts)
    ]
    if not body.stream:
        results = await run_while_connected(request.receive, _infer_all(context.engine, inferences))
        return json_response(completion.whole(results))
    streams = await run_while_connected(request.receive, _open_all(context.engine, inferences))
    has_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    events = _events(completion, streams, has_usage=has_usage)
    return EventStreamResponse(b"", streams, events, context.options.ping_interval_s)


async def _infer_all(engine: EngineDoor, requests: Sequence[InferenceRequest]) -> list[InferenceResult]:
    """All results in order; the first failure cancels the rest."""
    tasks = [asyncio.create_task(engine.infer(request)) for request in requests]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancel_and_wait(*tasks)


async def _open_all(engine: EngineDoor, requests: Sequence[InferenceRequest]) -> list[ChunkStream]:
    streams: list[ChunkStream] = []
    try:
        for request in requests:
            streams.append(await engine.open_stream(request))
    except BaseException:
        await close_streams(streams)
        raise
    return streams


async def _events(
    completion: _Completion, streams: Sequence[ChunkStream], *, has_usage: bool
) -> AsyncGenerator[bytes, None]:
    results: dict[int, InferenceResult] = {}
    async for index, chunk in merge_streams(streams):
        if chunk.text:
            yield completion.chunk(index, chunk.text, _OPEN)
        if chunk.result is not None:
            results[index] = chunk.result
            yield completion.chunk(index, "", end_fields(chunk.result))
    if has_usage:
        yield completion.usage_chunk([results[index] for index in sorted(results)])
    yield DONE


@dataclass(frozen=True, slots=True)
class _Completion:
    """The fields that all objects of one answer share. ``created`` is in Unix seconds."""

    id: str
    created: int
    model: str

    def _object(self, choices: list[dict[str, object]]) -> dict[str, object]:
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }

    def whole(self, results: Sequence[InferenceResult]) -> dict[str, object]:
        choices = [_choice(index, result.text, end_fields(result)) for index, result in enumerate(results)]
        return {**self._object(choices), **usage_fields(results)}

    def chunk(self, index: int, text: str, end: Mapping[str, object]) -> bytes:
        return data_event(self._object([_choice(index, text, end)]))

    def usage_chunk(self, results: Sequence[InferenceResult]) -> bytes:
        return data_event({**self._object([]), **usage_fields(results)})


def _choice(index: int, text: str, end: Mapping[str, object]) -> dict[str, object]:
    return {"index": index, "text": text, "logprobs": None, **end}
