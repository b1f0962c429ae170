"""Bytes on a connection before they are a request: bounded, and answered in HTTP/1.1 whatever they offer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import uvicorn
from scripted_engine import ScriptedEngine
from starlette.applications import Starlette
from uvicorn.server import ServerState

from ferrum.server import http_connection, request_body
from ferrum.server.app import create_app
from ferrum.server.http_connection import MAX_HEAD_BYTES, HttpConnection
from ferrum.server.server_context import ServerContext

CHAT = json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode()
STREAM = json.dumps({"messages": [{"role": "user", "content": "hi"}], "stream": True}).encode()
H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
WEBSOCKET = b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"


def post(body: bytes, headers: bytes = b"") -> bytes:
    length = b"Content-Length: %d\r\n" % len(body)
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: here\r\n" + headers + length + b"\r\n" + body


class Listener:
    """A port with HttpConnection behind it; ``state`` is what uvicorn knows of its connections."""

    def __init__(self, app: Starlette) -> None:
        config = uvicorn.Config(
            app, http=HttpConnection, ws="none", lifespan="off", log_config=None, access_log=False
        )
        config.load()
        self.state = ServerState()
        self._make = lambda: HttpConnection(config, self.state, {})

    async def open(self) -> None:
        self._server = await asyncio.get_running_loop().create_server(self._make, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._server.close()
        for connection in list(self.state.connections):
            connection.transport.abort()
        while self.state.connections or self.state.tasks:
            await asyncio.sleep(0.001)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def all_answers(self, *parts: bytes) -> bytes:
        """Everything that comes back until the server closes."""
        reader, writer = await self.connect()
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.01)
            return await asyncio.wait_for(reader.read(), 5)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()


@pytest.fixture
async def listener(app: Starlette) -> AsyncIterator[Listener]:
    listening = Listener(app)
    await listening.open()
    yield listening
    await listening.close()


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return int(head.split()[1]), await asyncio.wait_for(reader.readexactly(length), 5)


@pytest.mark.parametrize("offer", [H2C, WEBSOCKET], ids=["h2c", "websocket"])
@pytest.mark.parametrize("split_at", [None, 10, 90, -len(CHAT), -3], ids=str)
async def test_an_offer_to_change_the_protocol_is_passed_over_body_and_all(
    listener: Listener, caplog: pytest.LogCaptureFixture, offer: bytes, split_at: int | None
) -> None:
    """Java's HTTP client offers h2c with its first request, and curl --http2 with each."""
    reader, writer = await listener.connect()
    request = post(CHAT, offer)
    for _ in range(2):
        parts = [request] if split_at is None else [request[:split_at], request[split_at:]]
        for part in parts:
            writer.write(part)
            await asyncio.sleep(0.01)
        status, body = await read_answer(reader)
        assert status == 200, body
        assert json.loads(body)["object"] == "chat.completion"
    writer.write(request + request)
    assert [(await read_answer(reader))[0] for _ in range(2)] == [200, 200]
    writer.close()
    assert not caplog.records


async def test_a_wish_to_close_beside_an_offer_is_kept(listener: Listener) -> None:
    offer = H2C.replace(b"Upgrade,", b"Upgrade, close,", 1)

    answers = await listener.all_answers(post(CHAT, offer))

    assert answers.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in answers.lower()


@pytest.mark.parametrize(
    ("garbage", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\xfc\x03\x03 a TLS hello\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"CONNECT elsewhere:443 HTTP/1.1\r\nHost: elsewhere\r\n\r\n", 400),
        (b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n{}", 400),
        (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9" + b"9" * 30 + b"\r\n\r\n",
            400,
        ),
        (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n", 400),
        (b"GET /health HTTP/1.1\r\nX: " + b"x" * (MAX_HEAD_BYTES + 1), 431),
    ],
)
async def test_what_is_no_request_gets_an_error_object_and_the_end(
    listener: Listener, garbage: bytes, status: int
) -> None:
    answer = await listener.all_answers(garbage)

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close" in head
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    "begin",
    [
        b"GET /health HTTP/1.1\r\nX: ",
        b"GET /health HTTP/1.1\r\n",
        b"GET /",
        b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;",
    ],
    ids=["one header", "headers", "target", "trailers", "chunk extension"],
)
async def test_bytes_that_lead_nowhere_are_not_collected(listener: Listener, begin: bytes) -> None:
    """Whatever part of a request has no end: the server closes long before its memory is full."""
    line = b"y" * 999 + b"\r\n" if begin.endswith(b"\r\n") else b"y" * 1001
    filler = line.replace(b"y\r", b"y: y\r") * 64
    _, writer = await listener.connect()
    writer.write(begin)

    with pytest.raises(ConnectionError):
        await send_again_and_again(writer, filler, 100 * MAX_HEAD_BYTES)

    writer.close()


async def send_again_and_again(writer: asyncio.StreamWriter, filler: bytes, most: int) -> None:
    for _ in range(most // len(filler)):
        writer.write(filler)
        await writer.drain()


async def test_a_body_of_any_size_is_no_head(listener: Listener) -> None:
    large = json.dumps({"messages": [{"role": "user", "content": "x" * (MAX_HEAD_BYTES + 10_000)}]}).encode()
    reader, writer = await listener.connect()

    for _ in range(2):
        writer.write(post(large))
        assert (await read_answer(reader))[0] == 200

    writer.close()


async def test_a_stream_is_not_spoilt_by_garbage_behind_its_request(
    listener: Listener, engine: ScriptedEngine
) -> None:
    engine.released.clear()
    reader, writer = await listener.connect()
    writer.write(post(STREAM))
    assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)).startswith(b"HTTP/1.1 200")

    writer.write(b"\x00\x01garbage\r\n\r\n")

    assert b"error" not in await asyncio.wait_for(reader.read(), 5)
    writer.close()


@pytest.mark.parametrize("begin", [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nX: y\r\n"])
async def test_a_client_that_never_ends_its_head_is_closed(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    monkeypatch.setattr(http_connection, "HEAD_S", 0.05)

    assert await listener.all_answers(begin) == b""


async def test_a_client_that_never_ends_its_body_is_told_and_closed(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_body, "IDLE_S", 0.05)

    answer = await listener.all_answers(post(CHAT)[:-1])

    assert answer.startswith(b"HTTP/1.1 408")
    assert b"connection: close" in answer.lower()


async def test_a_connection_that_rests_between_two_requests_is_kept(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "HEAD_S", 0.05)
    reader, writer = await listener.connect()

    for _ in range(2):
        writer.write(post(CHAT))
        assert (await read_answer(reader))[0] == 200
        await asyncio.sleep(0.1)

    writer.close()


async def ask_and_write_no_more(
    listener: Listener, engine: ScriptedEngine, body: bytes, wait_s: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection whose client's half is closed behind the request; its answer begins ``wait_s`` later."""
    engine.released.clear()
    reader, writer = await listener.connect()
    writer.write(post(body))
    writer.write_eof()
    await asyncio.sleep(wait_s)
    engine.released.set()
    return reader, writer


async def skip_interim(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """How many interim answers came, and the head of the final one."""
    num_interim = 0
    while True:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        if not head.startswith(b"HTTP/1.1 100"):
            return num_interim, head
        num_interim += 1


@pytest.mark.parametrize("wait_s", [0.0, 0.25])
async def test_a_client_that_writes_no_more_but_reads_gets_its_whole_answer(
    listener: Listener, engine: ScriptedEngine, wait_s: float
) -> None:
    reader, writer = await ask_and_write_no_more(listener, engine, CHAT, wait_s)

    num_interim, head = await skip_interim(reader)

    assert num_interim >= (2 if wait_s else 0)
    assert head.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in head.lower()
    body = await asyncio.wait_for(reader.read(), 5)
    assert json.loads(body)["choices"][0]["message"]["content"] == "Hello"
    writer.close()


@pytest.mark.parametrize("wait_s", [0.0, 0.25])
async def test_a_client_that_writes_no_more_but_reads_gets_its_whole_stream(
    listener: Listener, engine: ScriptedEngine, wait_s: float
) -> None:
    reader, writer = await ask_and_write_no_more(listener, engine, STREAM, wait_s)

    answer = await asyncio.wait_for(reader.read(), 5)

    assert answer.count(b": ping") >= (2 if wait_s else 0)
    assert answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert engine.num_cancelled == 0
    writer.close()


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
@pytest.mark.parametrize("body", [CHAT, STREAM], ids=["whole", "stream"])
async def test_a_client_that_is_gone_is_found_out_before_its_answer(
    listener: Listener, engine: ScriptedEngine, version: bytes, body: bytes
) -> None:
    engine.released.clear()
    _, writer = await listener.connect()
    writer.write(post(body).replace(b"HTTP/1.1", b"HTTP/" + version, 1))
    while not engine.num_running:
        await asyncio.sleep(0.001)

    writer.close()

    async with asyncio.timeout(1):
        while not engine.num_cancelled:
            await asyncio.sleep(0.001)
    assert engine.num_running == 0


async def test_a_stream_whose_client_is_gone_ends_long_before_its_next_ping(
    context: ServerContext, engine: ScriptedEngine
) -> None:
    engine.released.clear()
    listening = Listener(create_app(replace(context, options=replace(context.options, ping_interval_s=60.0))))
    await listening.open()
    reader, writer = await listening.connect()
    writer.write(post(STREAM))
    await asyncio.wait_for(reader.readuntil(b"assistant"), 5)

    writer.close()

    async with asyncio.timeout(1):
        while not engine.num_cancelled:
            await asyncio.sleep(0.001)
    await listening.close()


async def test_a_request_that_ends_in_its_middle_counts_as_given_up(
    listener: Listener, engine: ScriptedEngine
) -> None:
    reader, writer = await listener.connect()
    writer.write(post(CHAT)[:-1])
    writer.write_eof()

    assert await asyncio.wait_for(reader.read(), 5) == b""
    assert not engine.requests
    writer.close()


async def test_half_a_close_in_http_1_0_counts_as_gone(listener: Listener, engine: ScriptedEngine) -> None:
    """Nothing may be written to it before its answer, so one that is gone could not be told apart."""
    engine.released.clear()
    reader, writer = await listener.connect()
    writer.write(post(CHAT).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
    writer.write_eof()

    assert await asyncio.wait_for(reader.read(), 5) == b""
    assert engine.num_running == 0
    writer.close()
