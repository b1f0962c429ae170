"""What the server asks of an engine. The server knows no more of it than this."""

from __future__ import annotations

from typing import Protocol, Self

from prometheus_client import CollectorRegistry

from ferrum.core.request import InferenceRequest, InferenceResult, StreamChunk


class ChunkStream(Protocol):
    """An accepted request's answer. ``aclose`` cancels the request if it still runs; idempotent."""

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> StreamChunk: ...

    async def aclose(self) -> None: ...


class EngineDoor(Protocol):
    """An engine as its HTTP clients see it.

    Cancelling the task that awaits ``infer``, or closing the stream of ``open_stream``, cancels the request
    within one step. Both raise InvalidRequest, QueueFull or EngineClosed for a request that is not taken.
    """

    def require_room(self) -> None:
        """Raises what ``infer`` would for any request at all: QueueFull, EngineClosed, EngineStalled."""
        ...

    async def infer(self, request: InferenceRequest) -> InferenceResult: ...

    async def open_stream(self, request: InferenceRequest) -> ChunkStream:
        """Returns once the request is accepted, long before its first token."""
        ...

    async def shutdown(self, drain_s: float) -> None: ...

    @property
    def request_capacity(self) -> int:
        """Most requests that can run and wait at once."""
        ...

    @property
    def registry(self) -> CollectorRegistry: ...

    @property
    def death_reason(self) -> str | None: ...
