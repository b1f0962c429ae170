"""``ferrum bench serve`` as a program, against the real server over a scripted engine."""

import json
import subprocess
import sys
from pathlib import Path

from server_process import scripted_server


def bench_serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ferrum", "bench", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_load_is_measured_and_reported_three_ways(tmp_path: Path) -> None:
    output, page = tmp_path / "load.json", tmp_path / "load.html"
    with scripted_server() as server:
        done = bench_serve(
            *("--url", server.url, "--model", "tiny", "--concurrency", "4", "--num-requests", "12"),
            *("--prompt-words", "10", "--output-tokens", "20", "--seed", "1"),
            *("--json", str(output), "--html", str(page)),
        )
        assert done.returncode == 0, done.stderr
        # The load and its warm-up, and every answer at full length although the model could have ended.
        assert server.metric(r'ferrum_engine_requests_finished_total\{finish_reason="length"\}') == 13
    figures = json.loads(output.read_text())
    assert (figures["num_complete"], figures["num_errors"], figures["num_off_length"]) == (12, 0, 0)
    assert figures["output_tokens"] == 12 * 20
    assert figures["prompt_tokens"] > 12 * 10
    assert figures["gap_ms"]["count"] <= 12 * 19
    assert 0 < figures["first_token_ms"]["p50"] <= figures["answer_ms"]["p50"]
    assert "time to first token" in done.stdout
    assert "<svg" in page.read_text()


def test_random_arrivals_on_completions_with_shared_beginnings() -> None:
    with scripted_server() as server:
        done = bench_serve(
            *("--url", server.api, "--model", "tiny", "--rate", "100", "--num-requests", "10"),
            *("--endpoint", "completions", "--shared-prefix-words", "20", "--num-prefixes", "2"),
            *("--prompt-words", "5", "--output-tokens", "5"),
        )
    assert done.returncode == 0, done.stderr
    assert "10 of 10 answers complete" in done.stdout


def test_refusals_of_a_full_server_are_counted_not_raised(tmp_path: Path) -> None:
    output = tmp_path / "load.json"
    with scripted_server(max_running=1, max_waiting=1, latency_s=0.01) as server:
        done = bench_serve(
            *("--url", server.url, "--model", "tiny", "--concurrency", "8", "--num-requests", "8"),
            *("--prompt-words", "5", "--output-tokens", "5", "--json", str(output)),
        )
    assert done.returncode == 0, done.stderr
    figures = json.loads(output.read_text())
    assert figures["num_complete"] + figures["num_errors"] == 8
    assert figures["num_complete"] >= 1
    assert any(kind.startswith("status 429") for kind in figures["errors"])


def test_what_cannot_be_measured_is_one_line(tmp_path: Path) -> None:
    with scripted_server() as server:
        unknown = bench_serve("--url", server.url, "--model", "other")
    gone = bench_serve("--url", server.url, "--model", "tiny")
    folder = bench_serve("--url", server.url, "--model", "tiny", "--json", str(tmp_path))
    both = bench_serve("--url", server.url, "--model", "tiny", "--rate", "1", "--concurrency", "2")
    for done, words in (
        (unknown, "status 404"),
        (gone, "does not answer: connection"),
        (folder, "a folder"),
        (both, "give one of them"),
    ):
        assert done.returncode == 1
        assert words in done.stderr.splitlines()[-1]
        assert done.stderr.splitlines()[-1].startswith("ferrum: error: ")
        assert not done.stdout
