"""Profiles of a lowered plan: what belongs together, and what is predicted for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrum.bench.floor import Ceilings, floor_of
from ferrum.bench.operation_profile import CHOICE, ROPE_TABLES, ProfileLine, profile_lines
from ferrum.bench.step_work import StepRows, step_work
from ferrum.models.architectures import build_plan
from ferrum.plan.executable_plan import ExecutablePlan
from ferrum.plan.lowering import lower
from ferrum.plan.work_part import WorkPart
from ferrum.weights.checkpoint import open_checkpoint
from ferrum.weights.tensor_types import TensorType
from tiny_models import write_tiny_gemma3, write_tiny_llama

CEILINGS = Ceilings(1e9, dict.fromkeys(TensorType, 1e9), 1e9)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> ExecutablePlan:
    path = tmp_path_factory.mktemp("profile") / "tiny.gguf"
    with open_checkpoint(write_tiny_llama(path, TensorType.Q8_0)) as checkpoint:
        return lower(build_plan(checkpoint, 512))


def profiled(plan: ExecutablePlan, steps: list[StepRows]) -> dict[str, ProfileLine]:
    """Operation number n took n seconds."""
    seconds = [float(index) for index in range(len(plan.operations) + 2)]
    lines = profile_lines(plan, seconds, steps, CEILINGS)
    assert [line.seconds for line in lines] == sorted((line.seconds for line in lines), reverse=True)
    assert sum(line.seconds for line in lines) == sum(seconds)
    return {line.kind: line for line in lines}


def test_layers_share_a_line(plan: ExecutablePlan) -> None:
    lines = profiled(plan, [StepRows((WorkPart(9, 1),), 1)] * 3)
    assert lines["linear attn_q + attn_k + attn_v Q8_0"].calls == 2 * 3
    assert lines["linear ffn_gate + ffn_up Q8_0"].calls == 2 * 3
    assert lines["attention"].calls == 2 * 3
    assert lines["linear token_embd Q8_0"].calls == 3
    assert lines[ROPE_TABLES].seconds == 0.0
    assert lines[CHOICE].seconds == len(plan.operations) + 1
    assert any(kind.startswith("rows: ") and "rms_norm" in kind for kind in lines)


def test_predictions_add_up_to_the_floors_parts(plan: ExecutablePlan) -> None:
    steps = [StepRows((WorkPart(0, 40),), 1), StepRows((WorkPart(40, 1), WorkPart(7, 1)), 2)]
    lines = profiled(plan, steps)
    known = [line.prediction for line in lines.values() if line.prediction is not None]
    works = [step_work(plan.authored, step) for step in steps]
    floor = floor_of(works, CEILINGS)
    assert sum(one.arithmetic_s for one in known) == pytest.approx(floor.arithmetic_s)
    # What the floor has besides: rows of the embedding, and K and V written.
    embedding = 42 * TensorType.Q8_0.row_bytes(64)
    written = 42 * 2 * (2 * 2 * 16 * 2)
    assert sum(one.bytes_s for one in known) == pytest.approx(floor.bytes_s - (embedding + written) / 1e9)


def test_row_wise_work_is_not_predicted(plan: ExecutablePlan) -> None:
    lines = profiled(plan, [StepRows((WorkPart(0, 1),), 1)])
    for kind, line in lines.items():
        is_predicted = kind.startswith(("linear", "attention"))
        assert (line.prediction is not None) == is_predicted, kind
        assert (line.ratio is not None) == is_predicted
        assert line.as_json(10.0)["share"] == line.seconds / 10.0


def test_windows_are_told_apart(tmp_path: Path) -> None:
    with open_checkpoint(write_tiny_gemma3(tmp_path / "m.gguf", TensorType.Q8_0)) as checkpoint:
        gemma = lower(build_plan(checkpoint, 512))
    lines = profiled(gemma, [StepRows((WorkPart(300, 1),), 1)])
    assert lines["attention window 40"].calls == 6
    assert lines["attention"].calls == 1
