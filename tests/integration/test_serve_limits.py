"""Limits that ``ferrum serve`` takes from its command line, as clients meet them."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from server_process import server

from tiny_chat_model import write_tiny_chat_model


def _command(model: object, *options: str) -> list[str]:
    return [sys.executable, "-m", "ferrum", "serve", str(model), "--port", "0", "--threads", "1", *options]


def test_the_queue_is_bounded_in_tokens_and_a_step_in_size(tmp_path: Path) -> None:
    model = write_tiny_chat_model(tmp_path / "tiny.gguf", context_length=1024)
    limits = ["--max-num-seqs", "1", "--max-waiting-tokens", "500", "--max-num-batched-tokens", "40"]
    with server(_command(model, *limits, "--prefill-step-chunk", "30", "--no-prefix-cache")) as running:
        assert any("step: 40 tokens" in line for line in running.lines)

        def ask(_: int) -> tuple[int, str | None]:
            body = {"prompt": [40] * 300, "max_tokens": 60, "ignore_eos": True}
            answer = httpx.post(f"{running.api}/completions", json=body, timeout=60)
            return answer.status_code, answer.headers.get("Retry-After")

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(ask, range(8)))
        # One runs, one waits; a second one would make 600 tokens wait.
        assert {status for status, _ in answers} == {200, 429}
        assert all(retry is not None for status, retry in answers if status == 429)
        assert running.metric('ferrum_engine_step_tokens_bucket{le="64.0"}') == running.metric(
            "ferrum_engine_step_tokens_count"
        )
        num_answered = [status for status, _ in answers].count(200)
        assert running.metric("ferrum_engine_prefill_tokens_total") == 300 * num_answered
        # Ten chunks of 30 for each prompt, and a step for each token but the first.
        assert running.metric("ferrum_engine_iterations_total") == num_answered * (10 + 59)


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (["--max-waiting-tokens", "0"], "must be at least 1, not 0"),
        (["--max-num-batched-tokens", "8"], "8 is below max_running_requests (16)"),
        (["--max-num-batched-tokens", "0"], "must be at least 1, not 0"),
        (["--prefill-first-until-active", "-1"], "must be at least 0, not -1"),
        (["--prefill-step-chunk", "0"], "must be at least 1, not 0"),
        (["--active-decode-prefill-chunk", "0"], "must be at least 1, not 0"),
    ],
)
def test_a_limit_that_is_none_is_refused_by_name(option: list[str], expected: str) -> None:
    ended = subprocess.run(_command("nowhere.gguf", *option), capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"ferrum: error: {option[0]}: {expected}")
    assert ended.stderr.count("\n") == 1
