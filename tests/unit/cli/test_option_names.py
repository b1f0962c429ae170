"""A refusal names the option that was typed, not the field it became."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ferrum.cli.json_output import require_writable
from ferrum.cli.main import app
from ferrum.cli.model_options import read_text_file
from ferrum.cli.option_names import OPTION_OF_FIELD, in_words_of_options
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.errors import InvalidConfig


def test_every_option_it_names_is_one() -> None:
    offered = CliRunner().invoke(app, ["serve", "--help"]).output.split()
    assert set(OPTION_OF_FIELD.values()) <= {word.rstrip(",") for word in offered}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SchedulerConfig(max_running_requests=0), "--max-num-seqs: must be at least 1"),
        (lambda: SchedulerConfig(max_waiting_requests=0), "--max-waiting: must be at least 1"),
        (lambda: EngineConfig(max_model_len=0), "--context-length: must be at least 1"),
        (lambda: EngineConfig(stall_after_s=0), "--stall-seconds: must be between 1"),
    ],
)
def test_fields_are_told_by_their_options(make, words: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        make()
    assert in_words_of_options(caught.value).startswith(words)


def test_the_command_says_it_in_one_line() -> None:
    command = [sys.executable, "-c", "from ferrum.cli.main import main; main()", "serve", "no.gguf"]
    ended = subprocess.run([*command, "--max-waiting", "0"], capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1
    assert ended.stderr == "ferrum: error: --max-waiting: must be at least 1, not 0\n"


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"--grammar: /dev/zero has more than \d+ characters"):
        read_text_file("--grammar", Path("/dev/zero"))


def test_a_place_that_takes_no_file_is_found_before_the_work(tmp_path: Path) -> None:
    place, written = tmp_path / "figures.json", tmp_path / "old.json"
    written.write_text("old")
    require_writable(place, "--json")
    require_writable(written, "--json")
    require_writable(Path("/dev/null"), "--json")
    assert not place.exists()
    assert written.read_text() == "old"
    for impossible in (tmp_path, tmp_path / "no" / "x", Path("/proc/figures.json")):
        with pytest.raises(InvalidConfig, match="--json: cannot write"):
            require_writable(impossible, "--json")
