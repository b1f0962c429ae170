"""The measuring commands on a tiny model: they run, their figures have names, bad input is refused first."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ferrum.cli.bench import app
from ferrum.core.errors import FerrumError
from tiny_chat_model import write_tiny_chat_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_chat_model(tmp_path_factory.mktemp("bench") / "tiny.gguf"))


@pytest.fixture(autouse=True)
def _small_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of megabytes and other programs would take the suite's time and prove nothing here."""
    for module in ("roofline_report", "profile_report"):
        monkeypatch.setattr(f"ferrum.bench.{module}.buffer_bytes", lambda machine: 8 * 2**20)
    monkeypatch.setattr("ferrum.bench.roofline_report.find_reader", lambda num_bytes, num_threads: None)


def figures_of(tmp_path: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    output = tmp_path / "figures.json"
    result = CliRunner().invoke(app, [*arguments, "--json", str(output)], catch_exceptions=False)
    assert result.exit_code == 0
    figures: dict[str, Any] = json.loads(output.read_text())
    assert set(figures) >= {"model", "plan_hash", "numerics_id", "kernel_set", "threads", "machine", "commit"}
    return figures, result.stdout


@pytest.mark.parametrize("kv_dtype", ["f16", "int8"])
def test_roofline_reports_the_share_of_every_floor(tmp_path: Path, model: str, kv_dtype: str) -> None:
    options = ("--repetitions", "2", "--threads", "1", "--kv-dtype", kv_dtype)
    figures, shown = figures_of(tmp_path, "roofline", model, *options)
    for phase in ("prefill", "decode", "decode_deep", "batch_decode"):
        assert figures[f"{phase}_share_of_floor"] > 0
        one = figures["phases"][phase]
        assert one["share_of_floor"]["median"] == figures[f"{phase}_share_of_floor"]
        assert one["share_of_floor"]["repetitions"] == 2
        assert one["tokens_per_second"]["median"] > 0
        assert one["engine_tokens_per_second"]["median"] > 0
        assert one["bound"] in ("bytes", "arithmetic")
        assert phase in shown
    # The tiny model's context is shorter than the depth.
    assert figures["phases"]["decode_deep"]["depth"] + 32 == 2048
    assert figures["phases"]["batch_decode"]["num_sequences"] == 16
    # Before and after each phase, each time.
    assert figures["read_ceiling"]["repetitions"] == 2 * 2 * 4
    assert set(figures["linear_ceilings"]) == {"F32"}
    assert set(figures["one_thread_ceilings"]) == {"F32", "attention"}
    assert figures["read_cross_check"] is None
    assert "not cross-checked" in shown


def test_throughput_reports_each_concurrency(tmp_path: Path, model: str) -> None:
    options = ("--prompt-tokens", "20", "--output-tokens", "10", "--depth", "30", "--concurrency", "1,3")
    figures, shown = figures_of(tmp_path, "throughput", model, *options, "--repetitions", "2")
    assert [run["concurrency"] for run in figures["runs"]] == [1, 3]
    for run in figures["runs"]:
        assert run["prefill_tokens_per_second"]["median"] > 0
        assert run["output_tokens_per_second"]["repetitions"] == 2
        assert run["gap_ms"]["count"] == 9 * run["concurrency"]
        assert run["gap_ms"]["p50"] <= run["gap_ms"]["p99"]
    assert "prompts of 50 tokens" in shown


def test_profile_names_every_kind_of_operation(tmp_path: Path, model: str) -> None:
    figures, shown = figures_of(tmp_path, "profile", model, "--phase", "batch_decode")
    assert sum(one["share"] for one in figures["operations"]) == pytest.approx(1.0)
    attention = next(one for one in figures["operations"] if one["kind"] == "attention")
    assert attention["calls"] == 2 * 32
    assert attention["ratio"] > 0
    assert sum(one["ms"] for one in figures["operations"]) <= figures["wall_ms"]
    assert "attention" in shown


def test_compare_names_the_peers_it_could_not_measure(tmp_path: Path, model: str) -> None:
    options = ("--peers", "llama-server=/no/such/server,mistralrs", "--phases", "prefill512,decode")
    figures, shown = figures_of(tmp_path, "compare", model, *options, "--pairs", "2")
    assert set(figures["not_measured"]) == {"llama-server", "mistralrs"}
    assert figures["comparisons"] == []
    assert figures["ours"]["decode"]["repetitions"] == 2
    assert "not measured: llama-server: /no/such/server cannot be started" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("roofline", "--phases", "decode,warp"), "no phase named 'warp'"),
        (("compare", "--phases", "warp"), "no phase named 'warp'"),
        (("compare", "--peers", "warp"), "no peer named 'warp'"),
        (("profile", "--phase", "warp"), "no phase named 'warp'"),
        (("throughput", "--concurrency", "1,x"), "whole numbers from 1 up"),
        (("throughput", "--concurrency", "0"), "whole numbers from 1 up"),
        (("throughput", "--output-tokens", "5000"), "context holds 2048 tokens"),
        (("throughput", "--json", "/no/such/folder/x.json"), "no such folder"),
        (("roofline", "--threads", "0"), "threads"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_name(
    model: str, arguments: tuple[str, ...], words: str
) -> None:
    result = CliRunner().invoke(app, [arguments[0], model, *arguments[1:]])
    assert isinstance(result.exception, FerrumError), result.exception
    assert re.search(words, str(result.exception)), str(result.exception)


def test_a_prompt_of_one_token_has_no_prefill_to_measure(model: str) -> None:
    result = CliRunner().invoke(app, ["throughput", model, "--prompt-tokens", "1"])
    assert result.exit_code == 2
