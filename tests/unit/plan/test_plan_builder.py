"""What PlanBuilder writes down, and which checkpoints it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ferrum.core.errors import MalformedCheckpoint, UnsupportedModel
from ferrum.plan.model_plan import KvLayer
from ferrum.plan.operations import (
    Attention,
    Embed,
    Linear,
    Rope,
    RopeStyle,
    input_buffers,
    operand_weights,
)
from ferrum.plan.plan_builder import PlanBuilder
from ferrum.weights.checkpoint import Checkpoint, open_checkpoint
from ferrum.weights.tensor_types import TensorType
from gguf_factory import Tensor, write_gguf
from tiny_models import float_tensor


def ones(*shape: int) -> Tensor:
    return float_tensor(TensorType.F32, np.ones(shape))


def checkpoint_of(tmp_path: Path, **tensors: Tensor) -> Checkpoint:
    """Tensor names are given without ``.weight``; an underscored ``_bias`` ending becomes ``.bias``."""
    named = {
        f"{name.removesuffix('_bias')}.bias" if name.endswith("_bias") else f"{name}.weight": tensor
        for name, tensor in tensors.items()
    }
    return open_checkpoint(write_gguf(tmp_path / "m.gguf", {"general.architecture": "test"}, named))


def test_operations_are_written_in_order_with_their_buffers_and_weights(tmp_path: Path) -> None:
    builder = PlanBuilder(checkpoint_of(tmp_path, table=ones(10, 4), head=ones(10, 4), head_bias=ones(10)))
    x = builder.embed("table", 4, scale=2.0)
    logits = builder.linear(builder.select_output_rows(x), "head", 10)
    plan = builder.finish(logits, context_length=64)
    assert [operation.kind for operation in plan.operations] == ["embed", "select_output_rows", "linear"]
    assert plan.operations[0] == Embed("table", "table.weight", 2.0)
    assert plan.operations[2] == Linear("head", "output_rows", "head.weight", "head.bias")
    assert [spec.name for spec in plan.weights] == ["table.weight", "head.weight", "head.bias"]
    assert (plan.logits, plan.vocabulary_size, plan.context_length) == ("head", 10, 64)
    assert plan.buffer_width("head") == 10
    assert plan.architecture == "test"


def test_a_weight_used_twice_is_one_weight_and_two_buffers(tmp_path: Path) -> None:
    builder = PlanBuilder(checkpoint_of(tmp_path, table=ones(10, 4)))
    plan = builder.finish(builder.linear(builder.embed("table", 4), "table", 10), 8)
    assert [spec.name for spec in plan.weights] == ["table.weight"]
    assert [buffer.name for buffer in plan.buffers] == ["table", "table.2"]


def test_attention_opens_a_kv_layer_each_time(tmp_path: Path) -> None:
    builder = PlanBuilder(checkpoint_of(tmp_path, q=ones(10, 8), k=ones(10, 4)))
    q, k = builder.embed("q", 8), builder.embed("k", 4)
    builder.attention(q, k, k, head_width=2, scale=1.0, window=5)
    plan = builder.finish(builder.attention(q, k, k, head_width=4, scale=1.0), 8)
    assert plan.kv_layers == (KvLayer(2, 2, 5), KvLayer(1, 4, None))
    first, second = (one for one in plan.operations if isinstance(one, Attention))
    assert (first.layer, first.num_heads, first.num_kv_heads) == (0, 4, 2)
    assert (second.layer, second.num_heads, second.num_kv_heads) == (1, 2, 1)
    assert input_buffers(first) == ("q", "k", "k")
    assert operand_weights(first) == ()


def test_equal_plans_have_equal_hashes_and_a_changed_number_changes_it(tmp_path: Path) -> None:
    def plan_hash(base: float) -> str:
        builder = PlanBuilder(checkpoint_of(tmp_path, table=ones(10, 4)))
        x = builder.rope(builder.embed("table", 4), 4, RopeStyle.HALF, (1.0, base))
        return builder.finish(builder.linear(x, "table", 10), 8).hash()

    assert plan_hash(0.5) == plan_hash(0.5)
    assert plan_hash(0.5) != plan_hash(0.25)


def test_rope_keeps_what_it_was_given(tmp_path: Path) -> None:
    builder = PlanBuilder(checkpoint_of(tmp_path, table=ones(10, 4)))
    plan = builder.finish(builder.rope(builder.embed("table", 4), 2, RopeStyle.HALF, (0.5,)), 8)
    assert plan.operations[1] == Rope("table.rope", "table", 2, RopeStyle.HALF, (0.5,))


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    builder = PlanBuilder(checkpoint_of(tmp_path, table=ones(10, 4)))
    with pytest.raises(MalformedCheckpoint, match=r"tensor 'head\.weight' is missing"):
        builder.linear(builder.embed("table", 4), "head", 10)


@pytest.mark.parametrize("shape", [(10, 5), (4, 10), (40,), (10, 4, 1)])
def test_a_wrong_shape_is_named_with_both_shapes(tmp_path: Path, shape: tuple[int, ...]) -> None:
    builder = PlanBuilder(checkpoint_of(tmp_path, table=ones(10, 4), head=ones(*shape)))
    written = "x".join(map(str, shape))
    with pytest.raises(MalformedCheckpoint, match=rf"'head\.weight' has shape {written}, .* 10x4"):
        builder.linear(builder.embed("table", 4), "head", 10)


def test_a_table_that_is_no_matrix_is_refused(tmp_path: Path) -> None:
    builder = PlanBuilder(checkpoint_of(tmp_path, table=ones(40)))
    with pytest.raises(MalformedCheckpoint, match=r"'table\.weight' has shape 40"):
        builder.embed("table", 40)


def test_a_bias_of_the_wrong_length_is_refused(tmp_path: Path) -> None:
    builder = PlanBuilder(checkpoint_of(tmp_path, table=ones(10, 4), head=ones(10, 4), head_bias=ones(9)))
    with pytest.raises(MalformedCheckpoint, match=r"'head\.bias' has shape 9"):
        builder.linear(builder.embed("table", 4), "head", 10)


def test_a_quantised_norm_is_refused_with_its_type(tmp_path: Path) -> None:
    norm = (TensorType.Q8_0, np.zeros(34, np.uint8), (32,))
    builder = PlanBuilder(checkpoint_of(tmp_path, table=ones(10, 32), norm=norm))
    with pytest.raises(UnsupportedModel, match=r"'norm\.weight' is stored as Q8_0"):
        builder.rms_norm(builder.embed("table", 32), "norm", 1e-5)


def test_a_tensor_that_no_operation_reads_is_refused(tmp_path: Path) -> None:
    builder = PlanBuilder(checkpoint_of(tmp_path, table=ones(10, 4), gate=ones(4, 4)))
    x = builder.embed("table", 4)
    with pytest.raises(UnsupportedModel, match=r"tensor 'gate\.weight' is not part of architecture 'test'"):
        builder.finish(x, 8)


def test_values_shape_the_plan_without_being_operands(tmp_path: Path) -> None:
    builder = PlanBuilder(checkpoint_of(tmp_path, table=ones(10, 4), factors=ones(2)))
    assert builder.values("factors", 2).tolist() == [1.0, 1.0]
    plan = builder.finish(builder.embed("table", 4), 8)
    assert [spec.name for spec in plan.weights] == ["table.weight"]
