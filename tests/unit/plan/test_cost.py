"""Costs counted by hand on a plan small enough for that."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ferrum.core.kv_dtype import KvDtype
from ferrum.plan.cost import PlanCost, plan_cost
from ferrum.plan.plan_builder import PlanBuilder
from ferrum.weights.checkpoint import open_checkpoint
from ferrum.weights.tensor_types import TensorType
from gguf_factory import write_gguf


def small_cost(
    tmp_path: Path, num_keys: int, window: int | None = None, kv_dtype: KvDtype = KvDtype.F16
) -> PlanCost:
    table = (TensorType.Q8_0, np.zeros(10 * 34, np.uint8), (10, 32))
    path = write_gguf(tmp_path / "m.gguf", {"general.architecture": "test"}, {"table.weight": table})
    builder = PlanBuilder(open_checkpoint(path))
    x = builder.embed("table", 32)
    x = builder.attention(x, x, x, head_width=8, scale=1.0, window=window)
    return plan_cost(builder.finish(builder.linear(x, "table", 10), 100), num_keys, kv_dtype)


def test_each_operation_is_counted(tmp_path: Path) -> None:
    embed, attention, linear = small_cost(tmp_path, num_keys=5).operations
    assert (embed.weight_bytes, embed.activation_bytes, embed.multiply_adds) == (34, 32 * 4, 32)
    kv_bytes_per_token = 2 * 32 * 2
    assert attention.kv_bytes == (5 + 1) * kv_bytes_per_token
    assert attention.multiply_adds == 2 * 5 * 32
    assert attention.weight_bytes == 0
    assert (linear.weight_bytes, linear.activation_bytes) == (340, (32 + 10) * 4)
    assert linear.multiply_adds == 320


def test_totals_are_the_sums(tmp_path: Path) -> None:
    cost = small_cost(tmp_path, num_keys=5)
    assert cost.resident_weight_bytes == 340
    assert cost.weight_bytes == 34 + 340
    assert cost.kv_bytes_per_token == 128
    assert cost.multiply_adds == 32 + 320 + 320
    assert cost.num_bytes == sum(one.num_bytes for one in cost.operations)


def test_int8_kv_is_a_byte_a_value_and_a_scale_a_token_head(tmp_path: Path) -> None:
    cost = small_cost(tmp_path, num_keys=5, kv_dtype=KvDtype.INT8)
    num_heads = 32 // 8
    assert cost.kv_bytes_per_token == 2 * (32 + 4 * num_heads)
    assert cost.kv_bytes == (5 + 1) * cost.kv_bytes_per_token


def test_a_window_bounds_what_attention_reads(tmp_path: Path) -> None:
    assert small_cost(tmp_path, num_keys=50, window=7).kv_bytes == (7 + 1) * 128
    assert small_cost(tmp_path, num_keys=5, window=7).kv_bytes == (5 + 1) * 128
