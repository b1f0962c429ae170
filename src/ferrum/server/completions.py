"""POST /v1/completions: plain text or token ids, one prompt or several, streamed and whole."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ferrum.core.errors import FerrumError, InvalidRequest
from ferrum.core.request import InferenceRequest, InferenceResult
from ferrum.core.sampling_params import SamplingParams
from ferrum.server.completion_prompts import completion_prompts
from ferrum.server.constraint_fields import constraint_wire_name
from ferrum.server.core_to_wire import end_fields, joined, usage_fields
from ferrum.server.disconnect import cancel_and_wait, run_while_connected
from ferrum.server.engine_door import ChunkStream, EngineDoor
from ferrum.server.error_responses import answering_errors, error_response, json_response
from ferrum.server.logprob_objects import completion_logprobs, prompt_logprobs
from ferrum.server.merged_streams import merge_streams
from ferrum.server.request_body import read_json_object
from ferrum.server.server_context import ServerContext
from ferrum.server.sse import DONE, EventStreamResponse, close_streams, data_event
from ferrum.server.tenant import tenant_of
from ferrum.server.unsupported_fields import COMPLETION_FIELDS, refuse_unsupported
from ferrum.server.wire_schemas import CompletionBody, parse_body
from ferrum.server.wire_to_core import completion_sampling, inference_request

PATH = "/v1/completions"

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

    return [Route(PATH, create_completion, methods=["POST"])]


async def _answer(context: ServerContext, request: Request, body: CompletionBody) -> Response:
    completion = _Completion(
        id=f"cmpl-{uuid.uuid4().hex}", created=int(time.time()), model=context.models.resolve(body.model)
    )
    sampling = completion_sampling(body, context.sampling_defaults)
    prompts = completion_prompts(body.prompt)
    _require_room(len(prompts), sampling, context.engine.request_capacity)
    tenant = tenant_of(request, body)
    inferences = [
        inference_request(f"{completion.id}-{index}", prompt, sampling, body, context.options, tenant)
        for index, prompt in enumerate(prompts)
    ]
    if not body.stream:
        results = await run_while_connected(request.receive, _infer_all(context.engine, inferences))
        return json_response(completion.whole(results, sampling))
    streams = await run_while_connected(request.receive, _open_all(context.engine, inferences))
    has_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    events = _events(completion, streams, sampling, has_usage=has_usage)
    return EventStreamResponse(b"", streams, events, context.options.ping_interval_s)


def _require_room(num_prompts: int, sampling: SamplingParams, most: int) -> None:
    num_answers = sampling.num_answers
    if num_prompts * num_answers <= most:
        return
    name = "n" if sampling.best_of is None else "best_of"
    raise InvalidRequest(
        f"{num_prompts} prompts times {num_answers} answers ({name}), but this server takes {most} at once; "
        "send fewer in one request",
        param="prompt" if num_prompts > 1 else name,
    )


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
    completion: _Completion, streams: Sequence[ChunkStream], sampling: SamplingParams, *, has_usage: bool
) -> AsyncGenerator[bytes, None]:
    results: dict[int, InferenceResult] = {}
    lengths: Counter[int] = Counter()
    async for prompt, chunk in merge_streams(streams):
        index = prompt * sampling.n + chunk.index
        if chunk.text or chunk.logprobs:
            lengths[index] += len(chunk.text)
            logprobs = (
                completion_logprobs(chunk.logprobs, sampling.logprobs or 0, lengths[index])
                if chunk.logprobs
                else None
            )
            yield completion.chunk(_choice(index, chunk.text, logprobs, _OPEN))
        if chunk.result is not None:
            results[index] = chunk.result
            yield completion.chunk(_choice(index, "", None, end_fields(chunk.result)))
    if has_usage:
        ended = [results[index] for index in sorted(results)]
        firsts = range(0, len(ended), sampling.n)
        yield completion.usage_chunk([joined(ended[first : first + sampling.n]) for first in firsts])
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

    def whole(self, results: Sequence[InferenceResult], sampling: SamplingParams) -> dict[str, object]:
        answers = [answer for result in results for answer in result.answers]
        choices = [_whole_choice(index, answer, sampling) for index, answer in enumerate(answers)]
        return {**self._object(choices), **usage_fields(results)}

    def chunk(self, choice: dict[str, object]) -> bytes:
        return data_event(self._object([choice]))

    def usage_chunk(self, results: Sequence[InferenceResult]) -> bytes:
        return data_event({**self._object([]), **usage_fields(results)})


def _whole_choice(index: int, answer: InferenceResult, sampling: SamplingParams) -> dict[str, object]:
    logprobs = None
    prompt = answer.prompt_logprobs or ()
    if answer.logprobs is not None:
        entries = (*prompt, *answer.logprobs) if sampling.echo else answer.logprobs
        logprobs = completion_logprobs(entries, sampling.logprobs or 0, len(answer.text))
    choice = _choice(index, answer.text, logprobs, end_fields(answer))
    if sampling.prompt_logprobs is not None:
        choice["prompt_logprobs"] = prompt_logprobs(prompt, sampling.prompt_logprobs)
    return choice


def _choice(
    index: int, text: str, logprobs: dict[str, object] | None, end: Mapping[str, object]
) -> dict[str, object]:
    return {"index": index, "text": text, "logprobs": logprobs, **end}
