"""The client against a server that says exactly what a test wants it to say."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from ferrum.bench.load.answer_record import AnswerRecord
from ferrum.bench.load.load_generator import closed_loop, open_loop
from ferrum.bench.load.stream_client import ServerAddress, StreamClient, parse_url
from ferrum.core.errors import InvalidConfig

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def chat_event(text: str | None = None, **fields: object) -> bytes:
    choices = [] if text is None else [{"index": 0, "delta": {"content": text}}]
    return b"data: " + json.dumps({"choices": choices, **fields}).encode() + b"\n\n"


USAGE = chat_event(usage={"prompt_tokens": 7, "completion_tokens": 3})
DONE = b"data: [DONE]\n\n"
WHOLE = [OK, chat_event(""), chat_event("a"), chat_event("b"), USAGE, DONE]


class Stage:
    """Answers every request with the same parts, a moment apart; remembers the requests."""

    def __init__(self, parts: Sequence[bytes], pause_s: float, *, hangs: bool) -> None:
        self._parts = parts
        self._pause_s = pause_s
        self._hangs = hangs
        self.bodies: list[dict[str, object]] = []
        self.heads: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.num_open = self.most_open = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.append(task)
        self.num_open += 1
        self.most_open = max(self.most_open, self.num_open)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(line for line in head.split("\r\n") if line.startswith("Content-Length"))
        self.heads.append(head)
        self.bodies.append(json.loads(await reader.readexactly(int(length.split(":")[1]))))
        for part in self._parts:
            writer.write(part)
            await asyncio.sleep(self._pause_s)
        if self._hangs:
            with contextlib.suppress(ConnectionError):
                await reader.read()
        self.num_open -= 1
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def stage(
    parts: Sequence[bytes], pause_s: float = 0.001, *, hangs: bool = False
) -> AsyncIterator[tuple[Stage, ServerAddress]]:
    """``hangs``: after the last part nothing comes until the client leaves."""
    one = Stage(parts, pause_s, hangs=hangs)
    server = await asyncio.start_server(one.answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield one, ServerAddress("127.0.0.1", port, "/v1")
        await asyncio.gather(*one.tasks)


async def ask(parts: Sequence[bytes], timeout_s: float = 5.0) -> AnswerRecord:
    async with stage(parts) as (_, address):
        return await StreamClient(address, "m", timeout_s=timeout_s).answer("hello", 3)


async def test_a_token_without_text_counts_where_ids_are_sent() -> None:
    def completion(text: str, ids: list[int]) -> bytes:
        return b"data: " + json.dumps({"choices": [{"text": text, "token_ids": ids}]}).encode() + b"\n\n"

    record = await ask([OK, completion("", [7]), completion("a", [8]), completion("", []), USAGE, DONE])
    assert record.error is None
    assert len(record.text_times) == 2


async def test_a_whole_answer_has_times_and_the_servers_counts() -> None:
    record = await ask(WHOLE)
    assert record.error is None
    assert (record.prompt_tokens, record.completion_tokens, record.num_tokens) == (7, 3, 3)
    # The empty opening piece is no token.
    assert len(record.text_times) == 2
    assert record.first_token_s is not None
    assert record.sent_at < record.text_times[0] < record.text_times[1] <= record.ended_at
    assert record.gaps_s == [record.text_times[1] - record.text_times[0]]


async def test_plain_completions_and_token_ids_are_understood() -> None:
    text = b'data: {"choices": [{"index": 0, "text": "a"}]}\n\n'
    async with stage([OK, text, DONE]) as (seen, address):
        client = StreamClient(address, "m", is_chat=False, api_key="k", extra={"ignore_eos": True})
        record = await client.answer([1, 2, 3], 5)
    assert record.error is None
    assert record.num_tokens == 1
    assert seen.bodies[0]["prompt"] == [1, 2, 3]
    assert seen.bodies[0]["ignore_eos"] is True
    assert seen.bodies[0]["max_tokens"] == 5
    assert seen.heads[0].startswith("POST /v1/completions HTTP/1.1\r\n")
    assert "Authorization: Bearer k\r\n" in seen.heads[0]


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ([OK, chat_event("a")], "answer cut off"),
        ([OK, chat_event("a"), b'data: {"error": {"message": "broke"}}\n\n'], "error event: broke"),
        ([OK, b"data: {nonsense\n\n"], "bad answer: event is not JSON: b'{nonsense'"),
        ([OK, b"data: 3\n\n"], "bad answer: event is no object: b'3'"),
        (
            [b"HTTP/1.1 429 Too Many\r\n\r\n", b'{"error": {"message": "queue is full"}}'],
            "status 429: queue is full",
        ),
        ([b"HTTP/1.1 502 Bad Gateway\r\n\r\n", b"<html>"], "status 502: <html>"),
        ([], "connection: closed without an answer"),
        ([b"what?\r\n\r\n"], "bad answer: not an HTTP answer: b'what?'"),
    ],
)
async def test_every_failure_is_named_and_none_is_raised(parts: list[bytes], error: str) -> None:
    record = await ask(parts)
    assert record.error == error
    assert record.ended_at > record.sent_at


async def test_a_server_that_never_ends_is_given_up() -> None:
    async with stage([OK, chat_event("a")], hangs=True) as (_, address):
        record = await StreamClient(address, "m", timeout_s=0.05).answer("hello", 3)
    assert record.error == "no end within 0.05 s"


async def test_nobody_listening_is_an_error_of_the_record() -> None:
    async with stage([]) as (_, address):
        pass
    record = await StreamClient(address, "m").answer("hello", 3)
    assert record.error is not None
    assert record.error.startswith("connection: ")


async def test_a_closed_loop_keeps_so_many_requests_running() -> None:
    async with stage(WHOLE, pause_s=0.005) as (seen, address):
        prompts = [f"prompt {index}" for index in range(9)]
        records = await closed_loop(StreamClient(address, "m"), prompts, 3, concurrency=4)
    assert [record.error for record in records] == [None] * 9
    assert seen.most_open == 4
    sent = [body["messages"][0]["content"] for body in seen.bodies]
    assert sorted(sent) == prompts


async def test_an_open_loop_does_not_wait_for_answers() -> None:
    async with stage(WHOLE, pause_s=0.03) as (seen, address):
        client = StreamClient(address, "m")
        begun = client.clock()
        records = await open_loop(client, ["a", "b", "c"], 3, [0.0, 0.01, 0.02])
    assert seen.most_open == 3
    sent_at = [record.sent_at - begun for record in records]
    assert sent_at[1] - sent_at[0] == pytest.approx(0.01)
    assert sent_at[2] - sent_at[1] == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8000", ("127.0.0.1", 8000, "/v1")),
        ("http://host:1/v1/", ("host", 1, "/v1")),
        ("http://[::1]:9/api", ("::1", 9, "/api")),
        ("http://host", ("host", 80, "/v1")),
    ],
)
def test_urls(url: str, address: tuple[str, int, str]) -> None:
    assert parse_url(url) == ServerAddress(*address)


@pytest.mark.parametrize(
    "url", ["https://host/v1", "host:8000", "http://", "http://host:port", "", "http://[::"]
)
def test_urls_that_cannot_be_used_are_refused(url: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_url(url)
    assert caught.value.field == "--url"
