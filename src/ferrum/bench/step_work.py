"""The least a step must do: bytes that have to be read once, and multiply-adds by kind of arithmetic.

Counts from the authored plan alone. Unlike ``plan.cost``, which describes one token, this describes a step of
many: a weight is read once for all its rows, and only output rows pass through the head.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ferrum.core.kv_dtype import KvDtype
from ferrum.plan.cost import kv_bytes_per_token, weight_bytes
from ferrum.plan.executable_plan import RowSpace
from ferrum.plan.lowering import row_spaces
from ferrum.plan.model_plan import KvLayer, ModelPlan
from ferrum.plan.operations import Attention, Embed, Linear
from ferrum.plan.work_part import WorkPart
from ferrum.weights.tensor_types import TensorType


@dataclass(frozen=True, slots=True)
class StepRows:
    """The rows of one step: parts of sequences, and how many rows want logits."""

    parts: tuple[WorkPart, ...]
    num_outputs: int

    @property
    def num_tokens(self) -> int:
        return sum(part.num_tokens for part in self.parts)


@dataclass(frozen=True, slots=True)
class StepWork:
    """``linear_multiply_adds`` by weight type; attention computes in float32 on its own."""

    num_tokens: int
    weight_bytes: int
    kv_bytes: int
    linear_multiply_adds: Mapping[TensorType, int]
    attention_multiply_adds: int

    @property
    def num_bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes


def step_work(plan: ModelPlan, step: StepRows, kv_dtype: KvDtype = KvDtype.F16) -> StepWork:
    """The work of one step."""
    weights = {weight.name: weight for weight in plan.weights}
    spaces = row_spaces(plan)
    parts, num_tokens = step.parts, step.num_tokens
    read_bytes = kv_bytes = attention_multiply_adds = 0
    linear: dict[TensorType, int] = {}
    for operation in plan.operations:
        match operation:
            case Embed():
                table = weights[operation.table]
                read_bytes += num_tokens * table.type.row_bytes(table.shape[-1])
            case Linear():
                weight = weights[operation.weight]
                rows = step.num_outputs if spaces[operation.out] is RowSpace.OUTPUTS else num_tokens
                read_bytes += weight_bytes(weight) if rows else 0
                linear[weight.type] = linear.get(weight.type, 0) + rows * math.prod(weight.shape)
            case Attention():
                layer = KvLayer(operation.num_kv_heads, operation.head_width, operation.window)
                read = sum(part.num_read_keys(operation.window) for part in parts)
                # The step's own K and V are written besides.
                kv_bytes += (read + num_tokens) * kv_bytes_per_token(layer, kv_dtype)
                pairs = sum(part.num_visible_keys(operation.window) for part in parts)
                attention_multiply_adds += 2 * pairs * operation.num_heads * operation.head_width
            case _:
                pass
    return StepWork(num_tokens, read_bytes, kv_bytes, MappingProxyType(linear), attention_multiply_adds)
