"""An engine door whose every piece of text is released by the test."""

import asyncio
from collections.abc import AsyncGenerator

from prometheus_client import CollectorRegistry, Counter

from ferrum.chat.template import ChatTemplate
from ferrum.core.cache_use import CacheEnd, CacheExplanation
from ferrum.core.errors import QueueFull
from ferrum.core.request import (
    ChatPrompt,
    FinishReason,
    InferenceRequest,
    InferenceResult,
    StreamChunk,
    Usage,
)

EXPLANATION = CacheExplanation(CacheEnd.DIFFERENT_TOKEN, 3, 2, 2, token_id=5, cached_token_id=6)
TEMPLATE = ChatTemplate("{% for message in messages %}{{ message.content }}{% endfor %}", {})


class ScriptedEngine:
    """Answers with ``pieces``; ``refusal`` refuses, ``failure`` ends an answer after its pieces.

    With ``hold`` a request waits (after being accepted) until the test sets ``released``.
    """

    def __init__(self, pieces: tuple[str, ...] = ("Hel", "lo"), *, hold: bool = False) -> None:
        self.pieces = pieces
        self.refusal: Exception | None = None
        self.is_full = False
        self.failure: Exception | None = None
        self.finish_reason = FinishReason.EOS
        self.released = asyncio.Event()
        if not hold:
            self.released.set()
        self.requests: list[InferenceRequest] = []
        self.num_running = 0
        self.num_cancelled = 0
        self.drain_s: float | None = None
        self.death_reason: str | None = None
        self.request_capacity = 8
        self.registry = CollectorRegistry()
        Counter("ferrum_engine_requests", "Requests taken.", registry=self.registry)

    def require_room(self) -> None:
        if self.is_full:
            raise QueueFull(8, 8, 2.5)

    async def infer(self, request: InferenceRequest) -> InferenceResult:
        async for chunk in await self.open_stream(request):
            if chunk.result is not None:
                return chunk.result
        raise AssertionError("a stream ends with its result")

    async def open_stream(self, request: InferenceRequest) -> AsyncGenerator[StreamChunk, None]:
        if self.refusal is not None:
            raise self.refusal
        if isinstance(request.prompt, ChatPrompt):
            TEMPLATE.render(request.prompt.messages)
        self.requests.append(request)
        return self._stream(request)

    async def _stream(self, request: InferenceRequest) -> AsyncGenerator[StreamChunk, None]:
        self.num_running += 1
        try:
            await self.released.wait()
            for piece in self.pieces:
                yield StreamChunk(piece)
                await asyncio.sleep(0)
            if self.failure is not None:
                raise self.failure
            yield StreamChunk("", self._result(request))
        except (asyncio.CancelledError, GeneratorExit):
            self.num_cancelled += 1
            raise
        finally:
            self.num_running -= 1

    def _result(self, request: InferenceRequest) -> InferenceResult:
        return InferenceResult(
            request_id=request.request_id,
            text="".join(self.pieces),
            token_ids=tuple(range(len(self.pieces))),
            finish_reason=self.finish_reason,
            usage=Usage(prompt_tokens=3, completion_tokens=len(self.pieces), cached_tokens=2),
            seed=7,
            cache_explanation=EXPLANATION if request.wants_cache_explanation else None,
        )

    async def shutdown(self, drain_s: float) -> None:
        self.drain_s = drain_s
