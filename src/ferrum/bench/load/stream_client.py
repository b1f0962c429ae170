"""A cheap client of OpenAI-compatible servers: it shares the machine with what it measures.

One connection a request, no HTTP library: an answer's bytes are looked at once, when they arrive.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import orjson

from ferrum.bench.load.answer_record import AnswerRecord
from ferrum.bench.load.event_stream import BrokenAnswer, EventStream
from ferrum.core.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where the API is: ``path`` begins with a slash and does not end with one, such as "/v1"."""

    host: str
    port: int
    path: str


def parse_url(url: str) -> ServerAddress:
    """``http://host:port`` or ``http://host:port/v1``. Raises InvalidConfig for anything else."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidConfig("--url", f"{url!r} is not a URL") from None
    if parts.scheme != "http" or not parts.hostname:
        raise InvalidConfig("--url", f"must be http://HOST:PORT or http://HOST:PORT/v1, not {url!r}")
    path = parts.path.rstrip("/") or "/v1"
    return ServerAddress(parts.hostname, port or 80, path)


@dataclass(frozen=True, slots=True)
class StreamClient:
    """Sends one kind of request. ``extra`` goes into every body; ``timeout_s`` is of a whole answer."""

    address: ServerAddress
    model: str
    is_chat: bool = True
    api_key: str | None = None
    timeout_s: float = 600.0
    extra: Mapping[str, object] = field(default_factory=dict)
    clock: Callable[[], float] = time.perf_counter

    async def answer(
        self, prompt: str | list[int], output_tokens: int, sent_at: float | None = None
    ) -> AnswerRecord:
        """Sends ``prompt`` and reads its answer to the end. Never raises: a failure is the record's error.

        Token ids are for servers that take them as plain completions.
        """
        record = AnswerRecord(self.clock() if sent_at is None else sent_at)
        request = self.request_bytes(prompt, output_tokens)
        try:
            async with asyncio.timeout(self.timeout_s):
                await self._exchange(request, record)
        except TimeoutError:
            record.error = f"no end within {self.timeout_s:g} s"
        except OSError as error:
            record.error = f"connection: {error.strerror or type(error).__name__}"
        record.ended_at = self.clock()
        return record

    def request_bytes(self, prompt: str | list[int], output_tokens: int) -> bytes:
        """The whole request."""
        question: dict[str, object] = (
            {"messages": [{"role": "user", "content": prompt}]} if self.is_chat else {"prompt": prompt}
        )
        body = json.dumps(
            {
                "model": self.model,
                **question,
                "max_tokens": output_tokens,
                "stream": True,
                "stream_options": {"include_usage": True},
                **self.extra,
            }
        ).encode()
        path = f"{self.address.path}/{'chat/completions' if self.is_chat else 'completions'}"
        key = f"Authorization: Bearer {self.api_key}\r\n" if self.api_key else ""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self.address.host}:{self.address.port}\r\n{key}"
            f"Content-Type: application/json\r\nAccept: text/event-stream\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + body

    async def _exchange(self, request: bytes, record: AnswerRecord) -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        transport, _ = await loop.create_connection(
            lambda: _AnswerReader(record, ended, self.clock), self.address.host, self.address.port
        )
        try:
            transport.write(request)
            await ended
        finally:
            transport.abort()


class _AnswerReader(asyncio.Protocol):
    """Turns what arrives into times and counts of one record."""

    def __init__(self, record: AnswerRecord, ended: asyncio.Future[None], clock: Callable[[], float]) -> None:
        self._record = record
        self._ended = ended
        self._clock = clock
        self._stream = EventStream()
        self._is_done = False

    def data_received(self, data: bytes) -> None:
        now = self._clock()
        try:
            for payload in self._stream.feed(data):
                self._read_payload(payload, now)
        except BrokenAnswer as broken:
            self._end(f"bad answer: {broken}")
            return
        if self._stream.is_complete:
            self._end_of_body()

    def eof_received(self) -> None:
        self._end_of_body()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_of_body()

    def _read_payload(self, payload: bytes, now: float) -> None:
        if payload == b"[DONE]":
            self._is_done = True
            return
        try:
            event = orjson.loads(payload)
        except orjson.JSONDecodeError:
            raise BrokenAnswer(f"event is not JSON: {payload[:40]!r}") from None
        if not isinstance(event, dict):
            raise BrokenAnswer(f"event is no object: {payload[:40]!r}")
        if event.get("error"):
            self._record.error = f"error event: {_message(event)}"
        if usage := event.get("usage"):
            self._record.prompt_tokens = usage.get("prompt_tokens")
            self._record.completion_tokens = usage.get("completion_tokens")
        if any(_has_text(choice) for choice in event.get("choices") or ()):
            self._record.text_times.append(now)

    def _end_of_body(self) -> None:
        status = self._stream.status
        if status is None:
            self._end("connection: closed without an answer")
        elif status != 200:
            self._end(f"status {status}: {_error_text(self._stream.error_body)}")
        else:
            self._end(None if self._is_done else "answer cut off")

    def _end(self, error: str | None) -> None:
        if not self._ended.done():
            self._record.error = self._record.error or error
            self._ended.set_result(None)


def _has_text(choice: Mapping[str, object]) -> bool:
    delta = choice.get("delta")
    if isinstance(delta, dict):
        return bool(delta.get("content") or delta.get("reasoning_content"))
    # Servers that name the ids of what they send also send tokens without text.
    return bool(choice.get("text") or choice.get("token_ids"))


def _message(event: Mapping[str, object]) -> str:
    error = event["error"]
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)


def _error_text(body: bytes) -> str:
    """OpenAI's message in an error body, or its beginning."""
    try:
        event = orjson.loads(body)
    except orjson.JSONDecodeError:
        event = None
    if isinstance(event, dict) and event.get("error"):
        return _message(event)
    return body[:200].decode(errors="replace").strip()
