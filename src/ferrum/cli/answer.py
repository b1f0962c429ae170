"""One question, one streamed answer."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from ferrum.cli.answer_output import AnswerOutput
from ferrum.cli.interrupts import Interrupts
from ferrum.core.request import InferenceRequest, InferenceResult, Prompt, StreamChunk
from ferrum.core.sampling_params import SamplingParams


class StreamingEngine(Protocol):
    """What a conversation asks of an engine."""

    def infer_stream(self, request: InferenceRequest) -> AsyncGenerator[StreamChunk, None]: ...


@dataclass(frozen=True, slots=True)
class Answer:
    """``result`` is None when Ctrl-C ended it; ``text`` is then what had come."""

    text: str
    result: InferenceResult | None


class Answerer:
    """Asks ``engine`` and writes to ``output``; Ctrl-C ends the answer."""

    def __init__(
        self,
        engine: StreamingEngine,
        sampling: SamplingParams,
        output: AnswerOutput,
        interrupts: Interrupts,
    ) -> None:
        self._engine = engine
        self._sampling = sampling
        self._output = output
        self._interrupts = interrupts

    async def answer(self, prompt: Prompt) -> Answer:
        """Streams one answer to its end. Raises InvalidRequest and the engine's other refusals."""
        pieces: list[str] = []
        reading = asyncio.create_task(self._read(prompt, pieces))
        result = None
        with self._interrupts.cancelling(reading):
            try:
                result = await reading
            except asyncio.CancelledError:
                if not self._interrupts.is_pending:
                    raise
        text = "".join(pieces)
        self._output.end(text, result)
        return Answer(text, result)

    async def _read(self, prompt: Prompt, pieces: list[str]) -> InferenceResult:
        request = InferenceRequest(f"run-{uuid.uuid4().hex}", prompt, self._sampling)
        chunks = self._engine.infer_stream(request)
        try:
            async for chunk in chunks:
                if chunk.text:
                    pieces.append(chunk.text)
                    self._output.delta(chunk.text)
                if chunk.result is not None:
                    return chunk.result
        finally:
            await chunks.aclose()
        raise AssertionError("a stream ends with its result")
