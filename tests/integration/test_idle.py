"""A served model that nobody asks anything costs nothing: under 0.5 % of a core, before and after load."""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from server_process import ServerProcess, server

from tiny_chat_model import write_tiny_chat_model

WINDOW_S = 10.0
MOST_OF_A_CORE = 0.005
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def thread_seconds(pid: int) -> dict[str, float]:
    """Processor time of each thread, user and system, by "name/id"; proc(5) on /proc/PID/task/TID/stat."""
    seconds = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(") ")
        fields = rest.split()
        seconds[f"{name}/{task.name}"] = (int(fields[11]) + int(fields[12])) * TICK_S
    return seconds


def idle_seconds(pid: int) -> dict[str, float]:
    before = thread_seconds(pid)
    time.sleep(WINDOW_S)
    after = thread_seconds(pid)
    used = {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}
    return {name: seconds for name, seconds in used.items() if seconds > 0}


def answer(running: ServerProcess, prompt: str) -> int:
    body = {"prompt": prompt, "max_tokens": 40, "ignore_eos": True, "seed": 1}
    answered = httpx.post(f"{running.api}/completions", json=body, timeout=60)
    assert answered.status_code == 200, answered.text
    return int(answered.json()["usage"]["completion_tokens"])


@pytest.mark.slow
def test_an_idle_server_with_a_model_leaves_the_processor_alone_before_and_after_load(tmp_path: Path) -> None:
    model = write_tiny_chat_model(tmp_path / "tiny.gguf")
    command = [sys.executable, "-m", "ferrum", "serve", str(model), "--port", "0", "--threads", "4"]
    with server(command) as running:
        pid = running.process.pid
        fresh = idle_seconds(pid)
        assert sum(fresh.values()) < MOST_OF_A_CORE * WINDOW_S, fresh

        started = sum(thread_seconds(pid).values())
        with ThreadPoolExecutor(16) as clients:
            lengths = list(clients.map(lambda i: answer(running, "hello " * (1 + i)), range(32)))
        assert lengths == [40] * 32
        assert sum(thread_seconds(pid).values()) > started  # the measure sees work when there is some

        rested = idle_seconds(pid)
        assert sum(rested.values()) < MOST_OF_A_CORE * WINDOW_S, rested
