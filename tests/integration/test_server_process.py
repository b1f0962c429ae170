"""The server on a real socket: the official client, many clients, clients that leave, signals, limits."""

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest
from server_process import ServerProcess, scripted_server

NUM_CLIENTS = 16


@pytest.fixture(scope="module")
def running() -> Iterator[ServerProcess]:
    with scripted_server() as process:
        yield process


@pytest.fixture(scope="module")
def client(running: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=running.api, api_key="none", max_retries=0) as made:
        yield made


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def whole_chat(client: openai.OpenAI, text: str, max_tokens: int = 24) -> str:
    answer = client.chat.completions.create(
        model="tiny", messages=user(text), max_tokens=max_tokens, temperature=0
    )
    return answer.choices[0].message.content


def streamed_chat(client: openai.OpenAI, text: str, max_tokens: int = 24) -> str:
    stream = client.chat.completions.create(
        model="tiny", messages=user(text), max_tokens=max_tokens, temperature=0, stream=True
    )
    chunks = list(stream)
    assert [chunk.choices[0].finish_reason for chunk in chunks].count("length") == 1
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def wait_until_idle(running: ServerProcess, within_s: float = 2.0) -> None:
    deadline = time.monotonic() + within_s
    while running.metric("ferrum_engine_num_requests_running") or running.metric(
        "ferrum_engine_num_requests_waiting"
    ):
        assert time.monotonic() < deadline, "requests still run"
        time.sleep(0.02)


def test_official_client_lists_completes_and_streams(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    whole = whole_chat(client, "hello")
    assert len(whole) == 24
    assert streamed_chat(client, "hello") == whole
    plain = client.completions.create(model="tiny", prompt="hello", max_tokens=5, temperature=0)
    assert len(plain.choices[0].text) == 5
    assert plain.usage is not None
    assert plain.usage.prompt_tokens == 5


def test_sixteen_clients_at_once_each_get_their_own_answer(client: openai.OpenAI) -> None:
    texts = [f"client number {index}" * (1 + index % 5) for index in range(NUM_CLIENTS)]
    alone = [whole_chat(client, text) for text in texts]
    assert len(set(alone)) == NUM_CLIENTS

    with ThreadPoolExecutor(2 * NUM_CLIENTS) as pool:
        whole = pool.map(lambda text: whole_chat(client, text), texts)
        streamed = pool.map(lambda text: streamed_chat(client, text), texts)
        assert list(whole) == alone
        assert list(streamed) == alone


def test_official_client_raises_its_own_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="gpt", messages=user("x"))
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as too_long:
        client.chat.completions.create(model="tiny", messages=user("x" * 5000), stream=True)
    assert too_long.value.code == "context_length_exceeded"
    assert "2048" in too_long.value.message
    with pytest.raises(openai.BadRequestError) as penalised:
        client.chat.completions.create(model="tiny", messages=user("x"), presence_penalty=3)
    assert penalised.value.param == "presence_penalty"


@pytest.mark.parametrize("body", [b"{:", b"", b"[]", b"[" * 10_000, b'{"messages":[{"role":"user"}]}'])
def test_malformed_body_is_refused_and_the_server_goes_on(
    running: ServerProcess, client: openai.OpenAI, body: bytes
) -> None:
    expected = whole_chat(client, "control")
    answer = httpx.post(f"{running.api}/chat/completions", content=body)

    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert whole_chat(client, "control") == expected
    assert running.process.poll() is None


def test_body_of_two_megabytes_is_a_context_error_not_a_size_error(running: ServerProcess) -> None:
    started_at = time.monotonic()
    answer = httpx.post(f"{running.api}/completions", json={"prompt": "x" * 2_000_000})

    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert time.monotonic() - started_at < 2


@pytest.mark.parametrize("has_length", [True, False])
def test_too_large_upload_gets_its_413_instead_of_a_reset(running: ServerProcess, has_length: bool) -> None:
    piece = b" " * 1_000_000

    def pieces() -> Iterator[bytes]:
        for _ in range(64):
            yield piece

    headers = {"Content-Length": str(64 * len(piece))} if has_length else {}
    answer = httpx.post(f"{running.api}/chat/completions", content=pieces(), headers=headers, timeout=20)

    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "request_too_large"
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    assert int(peak.split()[1]) < 250_000


def raw_request(running: ServerProcess, path: str, content: object) -> socket.socket:
    host, port = running.url.removeprefix("http://").split(":")
    body = json.dumps(content).encode()
    connection = socket.create_connection((host, int(port)), timeout=10)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def long_chat(*, is_streamed: bool) -> dict[str, object]:
    return {"messages": user("long"), "max_tokens": 1900, "temperature": 0, "stream": is_streamed}


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("leave_after_s", [0.0, 0.01, 0.2])
def test_clients_that_leave_stop_their_requests_and_disturb_nobody(
    running: ServerProcess, client: openai.OpenAI, is_streamed: bool, leave_after_s: float
) -> None:
    alone = whole_chat(client, "neighbour", max_tokens=150)
    with ThreadPoolExecutor(1) as pool:
        neighbour = pool.submit(whole_chat, client, "neighbour", 150)
        # More than may run at once: some of them leave while they are queued.
        leavers = [
            raw_request(running, "/v1/chat/completions", long_chat(is_streamed=is_streamed))
            for _ in range(24)
        ]
        time.sleep(leave_after_s)
        for connection in leavers:
            connection.close()
        assert neighbour.result(timeout=10) == alone
    wait_until_idle(running)
    assert whole_chat(client, "neighbour", max_tokens=150) == alone


@pytest.mark.parametrize("is_streamed", [False, True])
def test_clients_that_write_no_more_but_read_are_answered(
    running: ServerProcess, client: openai.OpenAI, is_streamed: bool
) -> None:
    """As ``nc -N`` and some scripts do; long enough to be asked whether they are still there."""
    content = {**long_chat(is_streamed=is_streamed), "max_tokens": 300}
    with raw_request(running, "/v1/chat/completions", content) as connection:
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as reader:
            answer = reader.read()

    expected = whole_chat(client, "long", max_tokens=300)
    _, _, body = answer.partition(b"HTTP/1.1 200 OK")[2].partition(b"\r\n\r\n")
    if is_streamed:
        assert body.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    else:
        assert json.loads(body)["choices"][0]["message"]["content"] == expected


def test_control_endpoints_answer_quickly_under_load(running: ServerProcess) -> None:
    leavers = [raw_request(running, "/v1/chat/completions", long_chat(is_streamed=True)) for _ in range(16)]
    big = raw_request(running, "/v1/completions", {"prompt": "x" * 3_000_000})
    waits = []
    try:
        with httpx.Client() as polling:
            for index in range(30):
                started_at = time.monotonic()
                path = ("/health", "/metrics", "/v1/models")[index % 3]
                assert polling.get(f"{running.url}{path}").status_code == 200
                waits.append(time.monotonic() - started_at)
                time.sleep(0.01)
    finally:
        for connection in (*leavers, big):
            connection.close()
    wait_until_idle(running)
    assert sorted(waits)[-2] < 0.25, waits


def test_idle_server_uses_no_processor(running: ServerProcess) -> None:
    wait_until_idle(running)
    before = running.cpu_seconds()
    time.sleep(1.0)

    # Whole ticks of 10 ms, three of them at most.
    assert round(running.cpu_seconds() - before, 2) <= 0.03


def test_stream_sends_headers_at_once_and_pings_while_it_waits() -> None:
    with scripted_server(latency_s=0.5, ping_s=0.1, max_running=1) as slow:
        stream = {"messages": user("x"), "max_tokens": 1, "stream": True}
        with raw_request(slow, "/v1/chat/completions", stream) as connection:
            started_at = time.monotonic()
            first = connection.recv(65536)
            assert time.monotonic() - started_at < 0.4
            assert first.startswith(b"HTTP/1.1 200")
            received = first
            while b"[DONE]" not in received:
                received += connection.recv(65536)
        assert received.count(b": ping\n\n") >= 2
        with openai.OpenAI(base_url=slow.api, api_key="none", max_retries=0) as client:
            assert len(streamed_chat(client, "x", max_tokens=2)) == 2


def test_full_queue_is_refused_at_once_and_the_accepted_ones_finish() -> None:
    with scripted_server(latency_s=0.005, max_running=2, max_waiting=2) as small:

        async def ask(client: httpx.AsyncClient) -> tuple[int, float, httpx.Headers]:
            body = {"messages": user("x"), "max_tokens": 60}
            started_at = time.monotonic()
            answer = await client.post(f"{small.api}/chat/completions", json=body)
            return answer.status_code, time.monotonic() - started_at, answer.headers

        async def ask_many() -> list[tuple[int, float, httpx.Headers]]:
            async with httpx.AsyncClient(timeout=20) as client:
                return await asyncio.gather(*(ask(client) for _ in range(16)))

        answers = asyncio.run(ask_many())
        refused = [answer for answer in answers if answer[0] == 429]
        assert {answer[0] for answer in answers} == {200, 429}
        assert len(refused) <= 12
        assert all(int(headers["Retry-After"]) >= 1 for _, _, headers in refused)
        assert min(took for _, took, _ in refused) < 0.2
        assert httpx.get(f"{small.url}/health").status_code == 200
        assert asyncio.run(ask_many())[0][0] in (200, 429)
        wait_until_idle(small)
        body = {"messages": user("x"), "max_tokens": 1}
        assert httpx.post(f"{small.api}/chat/completions", json=body).status_code == 200


async def read_stream(api: str, max_tokens: int, started: asyncio.Event) -> AsyncIterator[str]:
    body = {"messages": user("x"), "max_tokens": max_tokens, "stream": True}
    async with (
        httpx.AsyncClient(timeout=20) as client,
        client.stream("POST", f"{api}/chat/completions", json=body) as answer,
    ):
        async for line in answer.aiter_lines():
            started.set()
            yield line


async def collect(api: str, max_tokens: int, started: asyncio.Event) -> list[str]:
    return [line async for line in read_stream(api, max_tokens, started)]


async def test_first_signal_lets_running_streams_end_and_refuses_new_ones() -> None:
    with scripted_server(latency_s=0.005) as process:
        events = [asyncio.Event() for _ in range(4)]
        streams = [asyncio.create_task(collect(process.api, 150, event)) for event in events]
        await asyncio.gather(*(event.wait() for event in events))
        process.terminate()
        await asyncio.sleep(0.1)
        async with httpx.AsyncClient() as client:
            refused = await client.post(f"{process.api}/chat/completions", json={"messages": user("x")})
            assert refused.status_code == 503
            assert refused.headers["connection"] == "close"
            assert (await client.get(f"{process.url}/ready")).status_code == 503
            assert (await client.get(f"{process.url}/health")).status_code == 200
        for lines in await asyncio.gather(*streams):
            assert lines.count("data: [DONE]") == 1
        assert await asyncio.to_thread(process.process.wait, 5) == 0
        assert not any("Traceback" in line for line in process.lines)


async def test_drain_limit_ends_streams_in_order_and_exits_with_0() -> None:
    with scripted_server(latency_s=0.02, drain_s=0.2) as process:
        started = asyncio.Event()
        stream = asyncio.create_task(collect(process.api, 1900, started))
        await started.wait()
        process.terminate()
        lines = await stream
        assert "data: [DONE]" in lines or any('"error"' in line for line in lines)
        assert await asyncio.to_thread(process.process.wait, 5) == 0


@pytest.mark.slow
def test_clients_that_read_nothing_do_not_hold_the_end_up_nor_fill_the_log() -> None:
    with scripted_server() as process, contextlib.ExitStack() as sockets:
        port = int(process.url.rpartition(":")[2])
        body = {"messages": user("x"), "stream": True, "max_tokens": 1900, "n": 8}
        for _ in range(2):
            client = sockets.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", port))
            content = json.dumps(body).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
            client.sendall(head.encode() + content)
        deadline = time.monotonic() + 60
        while process.metric("ferrum_engine_tokens_generated_total") < 2 * 8 * 1900:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.terminate()
        assert process.process.wait(12) == 0
        assert not any("Traceback" in line or "ERROR" in line for line in process.lines)


async def test_second_signal_ends_at_once() -> None:
    with scripted_server(latency_s=0.02) as process:
        started = asyncio.Event()
        stream = asyncio.create_task(collect(process.api, 1900, started))
        await started.wait()
        process.terminate()
        await asyncio.sleep(0.1)
        process.process.send_signal(signal.SIGINT)
        signalled_at = time.monotonic()
        assert await asyncio.to_thread(process.process.wait, 5) == 0
        assert time.monotonic() - signalled_at < 2
        await asyncio.gather(stream, return_exceptions=True)
        assert not any("Traceback" in line for line in process.lines)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "no.such.host.invalid"], "unknown host"),
        (["--host", "192.0.2.1"], "cannot listen on 192.0.2.1"),
        (["--port", "99999"], "a port is a number"),
    ],
)
def test_address_that_cannot_be_used_is_one_line(arguments: list[str], words: str) -> None:
    assert_one_line_error(arguments, words)


def test_port_in_use_is_one_line_before_anything_is_loaded(running: ServerProcess) -> None:
    port = running.url.rpartition(":")[2]
    assert_one_line_error(["--port", port], f"cannot listen on 127.0.0.1:{port}")


def assert_one_line_error(arguments: list[str], words: str) -> None:
    command = [sys.executable, "-m", "ferrum", "serve", "no-such-model.gguf", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20)

    assert ended.returncode == 1
    assert ended.stdout == ""
    [line] = ended.stderr.splitlines()
    assert line.startswith("ferrum: error: ")
    assert words in line
