"""A server whose engine is stuck or dead, as its clients and whoever runs it see it."""

from __future__ import annotations

import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
from server_process import ServerProcess, scripted_server


def chat(text: str, max_tokens: int, **fields: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": max_tokens, **fields}


def events(running: ServerProcess, body: dict[str, object]) -> list[dict]:
    with httpx.stream("POST", f"{running.api}/chat/completions", json=body | {"stream": True}) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def wait_until_red(running: ServerProcess) -> str:
    deadline = time.monotonic() + 5
    while (answer := httpx.get(f"{running.url}/health")).status_code == 200:
        assert time.monotonic() < deadline, "still green"
        time.sleep(0.05)
    assert httpx.get(f"{running.url}/ready").status_code == 503
    return answer.json()["reason"]


def test_a_step_that_hangs_turns_health_red_and_ends_streams_with_an_error() -> None:
    with scripted_server(latency_s=0.01, stall_s=1.0, hang_at="Z") as running, ThreadPoolExecutor() as pool:
        stream = pool.submit(events, running, chat("long", 1900))
        time.sleep(0.3)
        assert httpx.get(f"{running.url}/health").status_code == 200
        whole = pool.submit(httpx.post, f"{running.api}/chat/completions", json=chat("Z", 5))
        assert "no step" in wait_until_red(running)
        last = stream.result(timeout=5)[-1]
        assert last["error"]["code"] == "engine_stalled"
        assert whole.result(timeout=5).status_code == 503
        started_at = time.monotonic()
        refused = httpx.post(f"{running.api}/chat/completions", json=chat("new", 5))
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_stalled")
        assert time.monotonic() - started_at < 1
        assert running.metric("ferrum_engine_failures_total") == 1
        assert running.process.poll() is None


def test_a_dead_engine_turns_health_red_and_ends_streams_with_an_error() -> None:
    with scripted_server(latency_s=0.01, die_at="Z") as running, ThreadPoolExecutor() as pool:
        stream = pool.submit(events, running, chat("long", 1900))
        time.sleep(0.3)
        assert httpx.post(f"{running.api}/chat/completions", json=chat("Z", 5)).status_code == 500
        assert "SystemExit" in wait_until_red(running)
        assert "error" in stream.result(timeout=5)[-1]
        assert httpx.post(f"{running.api}/chat/completions", json=chat("new", 5)).status_code == 500


def test_the_process_ends_with_its_code_when_told_to() -> None:
    with scripted_server(stall_s=1.0, hang_at="Z", exit_on_stall=1) as running, ThreadPoolExecutor() as pool:
        stream = pool.submit(events, running, chat("Z", 5))
        assert running.process.wait(timeout=10) == 70
        assert stream.result(timeout=5)[-1]["error"]["code"] == "engine_stalled"
    assert any("ending because the engine has work" in line for line in running.lines)


def test_a_process_that_was_stopped_and_goes_on_has_not_stalled() -> None:
    """As by a frozen container, a debugger, or a machine that is moved while it runs."""
    with scripted_server(stall_s=1, latency_s=0.01) as process:
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 300, "stream": True}
        with httpx.stream("POST", f"{process.api}/chat/completions", json=body, timeout=20) as answer:
            lines = answer.iter_lines()
            next(lines)
            process.process.send_signal(signal.SIGSTOP)
            time.sleep(2.5)
            process.process.send_signal(signal.SIGCONT)
            assert "data: [DONE]" in list(lines)
        assert process.metric("ferrum_engine_failures_total") == 0


def test_a_full_load_is_no_stall() -> None:
    with (
        scripted_server(latency_s=0.02, stall_s=1.0, max_running=2) as running,
        ThreadPoolExecutor(12) as pool,
    ):
        answers = [pool.submit(events, running, chat(f"n{number}", 30)) for number in range(12)]
        while not all(answer.done() for answer in answers):
            assert httpx.get(f"{running.url}/health").status_code == 200
            time.sleep(0.1)
        assert all("error" not in answer.result()[-1] for answer in answers)


def test_deadlines_hold_while_queued_and_while_streaming() -> None:
    with scripted_server(latency_s=0.02, max_running=1) as running, ThreadPoolExecutor() as pool:
        stream = pool.submit(events, running, chat("first", 1900, timeout_s=1.0))
        time.sleep(0.2)
        started_at = time.monotonic()
        queued = httpx.post(f"{running.api}/chat/completions", json=chat("late", 5, timeout_s=0.3))
        assert 0.2 < time.monotonic() - started_at < 1
        assert (queued.status_code, queued.json()["error"]["code"]) == (504, "deadline_exceeded")
        last = stream.result(timeout=5)[-1]
        assert last["choices"][0]["finish_reason"] == "timeout"
        assert running.metric("ferrum_engine_kv_blocks_used") == 0
