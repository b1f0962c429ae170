"""The work of a step, summed up per plan, is what counting operation by operation gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrum.bench.step_work import StepRows, step_work
from ferrum.core.kv_dtype import KvDtype
from ferrum.models.architectures import build_plan
from ferrum.plan.cost import plan_kv_bytes_per_token
from ferrum.plan.model_plan import ModelPlan
from ferrum.plan.plan_work import plan_work
from ferrum.plan.work_part import WorkPart
from ferrum.weights.checkpoint import open_checkpoint
from ferrum.weights.tensor_types import TensorType
from tiny_models import write_tiny_gemma3


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> ModelPlan:
    """Gemma, whose windows are shorter than the depths below."""
    path: Path = tmp_path_factory.mktemp("work") / "tiny.gguf"
    with open_checkpoint(write_tiny_gemma3(path, TensorType.Q8_0)) as checkpoint:
        return build_plan(checkpoint, 1024)


work_parts = st.lists(st.builds(WorkPart, st.integers(0, 300), st.integers(1, 60)), min_size=1, max_size=5)


@given(parts=work_parts, data=st.data())
def test_it_agrees_with_the_reports_count(
    plan: ModelPlan, parts: list[WorkPart], data: st.DataObject
) -> None:
    num_outputs = data.draw(st.integers(1, len(parts)))
    counted = step_work(plan, StepRows(tuple(parts), num_outputs), KvDtype.INT8)
    work = plan_work(plan, KvDtype.INT8).of(parts, num_outputs)
    assert work.linear_multiply_adds == sum(counted.linear_multiply_adds.values())
    assert work.attention_multiply_adds == counted.attention_multiply_adds
    num_tokens = sum(part.num_tokens for part in parts)
    # The reports also count what the step writes, and the rows of the embedding.
    assert work.kv_bytes == counted.kv_bytes - num_tokens * plan_kv_bytes_per_token(plan, KvDtype.INT8)
    assert 0 <= counted.weight_bytes - work.weight_bytes <= num_tokens * 4096


@given(starts=st.lists(st.integers(0, 900), min_size=1, max_size=20), data=st.data())
def test_rows_of_different_sequences_are_parts_of_one_token(
    plan: ModelPlan, starts: list[int], data: st.DataObject
) -> None:
    num_outputs = data.draw(st.integers(0, len(starts)))
    work = plan_work(plan)
    assert work.of_rows(starts, num_outputs) == work.of([WorkPart(each, 1) for each in starts], num_outputs)
