"""Work of a step: counted by hand, and equal to the plan's own cost where both describe the same step."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrum.bench.step_work import StepRows, step_work
from ferrum.models.architectures import build_plan
from ferrum.plan.cost import plan_cost
from ferrum.plan.model_plan import ModelPlan
from ferrum.plan.work_part import WorkPart
from ferrum.weights.checkpoint import open_checkpoint
from ferrum.weights.tensor_types import TensorType
from tiny_models import write_tiny_gemma3, write_tiny_llama


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> ModelPlan:
    """Gemma's windows are shorter than the depths below."""
    path = tmp_path_factory.mktemp("work") / "tiny.gguf"
    with open_checkpoint(write_tiny_gemma3(path, TensorType.Q8_0)) as checkpoint:
        return build_plan(checkpoint, 1024)


@given(start=st.integers(0, 60), length=st.integers(1, 60), window=st.none() | st.integers(1, 80))
def test_visible_and_read_keys_are_those_of_each_query(start: int, length: int, window: int | None) -> None:
    seen = [
        set(range(0 if window is None else max(0, position + 1 - window), position + 1))
        for position in range(start, start + length)
    ]
    part = WorkPart(start, length)
    assert part.num_visible_keys(window) == sum(len(keys) for keys in seen)
    assert part.num_read_keys(window) == len(set.union(*seen))


@pytest.mark.parametrize("depth", [0, 5, 200])
def test_one_token_costs_what_the_plan_says(plan: ModelPlan, depth: int) -> None:
    work = step_work(plan, StepRows((WorkPart(depth, 1),), 1))
    cost = plan_cost(plan, depth + 1)
    norms = sum(
        one.weight_bytes
        for one in cost.operations
        if one.operation.kind not in ("linear", "embed", "attention")
    )
    assert work.weight_bytes == cost.weight_bytes - norms
    assert work.kv_bytes == cost.kv_bytes
    arithmetic = sum(
        one.multiply_adds for one in cost.operations if one.operation.kind in ("linear", "attention")
    )
    assert sum(work.linear_multiply_adds.values()) + work.attention_multiply_adds == arithmetic


def test_sequences_share_the_weights_but_not_the_cache(plan: ModelPlan) -> None:
    one = step_work(plan, StepRows((WorkPart(100, 1),), 1))
    four = step_work(plan, StepRows((WorkPart(100, 1),) * 4, 4))
    assert four.kv_bytes == 4 * one.kv_bytes
    assert four.attention_multiply_adds == 4 * one.attention_multiply_adds
    assert four.linear_multiply_adds == {kind: 4 * count for kind, count in one.linear_multiply_adds.items()}
    # Only the rows of the embedding are more.
    assert four.weight_bytes - one.weight_bytes == 3 * TensorType.Q8_0.row_bytes(64)


def test_only_output_rows_pass_through_the_head(tmp_path: Path) -> None:
    with open_checkpoint(write_tiny_llama(tmp_path / "m.gguf", TensorType.F16)) as checkpoint:
        plan = build_plan(checkpoint, 1024)
    head = 96 * 64
    parts = (WorkPart(0, 10),)
    silent, speaking = (step_work(plan, StepRows(parts, outputs)) for outputs in (0, 1))
    difference = speaking.linear_multiply_adds[TensorType.F16] - silent.linear_multiply_adds[TensorType.F16]
    assert difference == head
    assert speaking.weight_bytes - silent.weight_bytes == 2 * head


def test_a_chunk_reads_its_cache_once(plan: ModelPlan) -> None:
    whole = step_work(plan, StepRows((WorkPart(0, 100),), 1))
    tokens = [step_work(plan, StepRows((WorkPart(at, 1),), 0)) for at in range(100)]
    assert whole.attention_multiply_adds == sum(one.attention_multiply_adds for one in tokens)
    assert whole.kv_bytes < sum(one.kv_bytes for one in tokens)
