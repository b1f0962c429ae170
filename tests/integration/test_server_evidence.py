"""A served model whose evidence is written: what is on the disk after it ended, and what a replay says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from server_process import server

from ferrum.evidence.profile_schema import find_problem
from tiny_chat_model import write_tiny_chat_model

BODY = {"prompt": "hello hello", "max_tokens": 12, "ignore_eos": True, "seed": 1, "token_trace": True}


def test_profile_trace_and_bundles_of_a_server_are_whole_when_it_has_ended(tmp_path: Path) -> None:
    model = write_tiny_chat_model(tmp_path / "tiny.gguf")
    journal, bundles = tmp_path / "journal.jsonl", tmp_path / "bundles"
    serve = [sys.executable, "-m", "ferrum", "serve", str(model), "--port", "0", "--threads", "2"]
    written = ["--profile-jsonl", str(journal), "--scheduler-trace-jsonl", str(journal)]
    kept = ["--bundle-dir", str(bundles), "--bundle-requests", "all"]
    with server([*serve, *written, *kept]) as running:
        answered = httpx.post(f"{running.api}/completions", json=BODY, timeout=60).json()
        running.terminate()
        assert running.process.wait(30) == 0
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    events = [line for line in lines if "phase" in line]
    assert [find_problem(event) for event in events] == [None] * len(events)
    assert {event["entrypoint"] for event in events} == {"serve"}
    phases = [event["phase"] for event in events]
    assert phases.count("execution.startup") == phases.count("execution.request_accepted") == 1
    assert phases.count("execution.iteration") == len(lines) - len(events) == 12
    assert "hello" not in journal.read_text()

    (bundle,) = bundles.iterdir()
    output = json.loads((bundle / "output_token_ids.json").read_text())
    (trace,) = answered["token_traces"]
    assert trace["generated"] == {
        "count": 12,
        "sha256": output["sha256"],
        "prefix": output["token_ids"],
        "tail": output["token_ids"],
    }
    argv = json.loads((bundle / "replay.command.json").read_text())["argv"]
    replayed = subprocess.run([sys.executable, "-m", *argv], capture_output=True, text=True, timeout=60)
    assert replayed.returncode == 0, replayed.stderr
    assert "the same (12 tokens compared)" in replayed.stdout


def test_journals_and_bundles_stay_within_the_limits_that_the_command_gives(tmp_path: Path) -> None:
    model = write_tiny_chat_model(tmp_path / "tiny.gguf")
    journal, bundles = tmp_path / "journal.jsonl", tmp_path / "bundles"
    serve = [sys.executable, "-m", "ferrum", "serve", str(model), "--port", "0", "--threads", "2"]
    written = ["--profile-jsonl", str(journal), "--journal-limit", "16KiB"]
    kept = ["--bundle-dir", str(bundles), "--bundle-requests", "all", "--bundle-limit", "2"]
    with server([*serve, *written, *kept]) as running:
        for _ in range(4):
            assert httpx.post(f"{running.api}/completions", json=BODY, timeout=60).status_code == 200
        running.terminate()
        assert running.process.wait(30) == 0
    assert len(list(bundles.iterdir())) == 2
    files = sorted(path.name for path in tmp_path.glob("journal.jsonl*"))
    assert files == ["journal.jsonl", "journal.jsonl.1"]
    assert 0 < journal.stat().st_size <= 2**14
    assert 2**13 < (tmp_path / "journal.jsonl.1").stat().st_size <= 2**14


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (["--journal-limit", "much"], "--journal-limit: 'much' is no size; write 2GiB"),
        (["--bundle-limit", "0"], "--bundle-limit: must be a count of at least 1, not 0"),
    ],
)
def test_a_limit_that_is_none_is_refused_by_name(option: list[str], expected: str) -> None:
    command = [sys.executable, "-m", "ferrum", "serve", "nowhere.gguf", *option]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert expected in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_journal_that_cannot_be_written_stops_the_server_before_the_model_is_loaded(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ferrum", "serve", "nowhere.gguf", "--port", "0"]
    path = tmp_path / "no" / "profile.jsonl"
    ended = subprocess.run(
        [*command, "--profile-jsonl", str(path)], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 1
    assert ended.stderr == f"ferrum: error: --profile-jsonl: cannot write {path}: no such folder\n"
