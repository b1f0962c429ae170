"""``ferrum plan`` on a tiny model, as a person and as a program read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ferrum.cli.main import app
from ferrum.core.errors import MalformedCheckpoint
from ferrum.models.architectures import build_plan
from ferrum.weights.checkpoint import open_checkpoint
from ferrum.weights.tensor_types import TensorType
from tiny_models import write_tiny_llama


@pytest.fixture
def tiny_path(tmp_path: Path) -> Path:
    return write_tiny_llama(tmp_path / "tiny.gguf", TensorType.Q4_1)


def output_of(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["plan", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_table_has_a_line_for_each_operation_and_the_totals(tiny_path: Path) -> None:
    plan = build_plan(open_checkpoint(tiny_path))
    lines = output_of(str(tiny_path)).splitlines()
    assert len(lines) == 1 + len(plan.operations) + 4
    head = next(line for line in lines if line.startswith("linear") and "blk.0.ffn_down" in line)
    assert head.split() == [
        "linear",
        "blk.0.ffn_down",
        "Q4_1",
        "64x96",
        "64",
        f"{64 * 3 * 20:,}",
        "0",
        f"{(64 + 96) * 4:,}",
        f"{64 * 96:,}",
    ]
    assert lines[-1] == f"plan {plan.hash()}"


def test_json_has_the_same_figures(tiny_path: Path) -> None:
    figures = json.loads(output_of(str(tiny_path), "--json", "--depth", "100"))
    plan = build_plan(open_checkpoint(tiny_path))
    assert figures["plan_hash"] == plan.hash()
    assert [one["kind"] for one in figures["operations"]] == [one.kind for one in plan.operations]
    totals = figures["totals"]
    for key in ("weight_bytes", "kv_bytes", "activation_bytes", "multiply_adds"):
        assert totals[key] == sum(one[key] for one in figures["operations"])
    assert totals["kv_bytes_per_token"] == 2 * 2 * 2 * 16 * 2
    assert totals["kv_bytes"] == 101 * totals["kv_bytes_per_token"]


def test_a_broken_model_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"not a model")
    result = CliRunner().invoke(app, ["plan", str(path)])
    assert isinstance(result.exception, MalformedCheckpoint)
