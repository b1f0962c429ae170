"""What a plan costs: bytes and multiply-adds of every operation for one token, and their sums.

Counts only what the plan itself says, so it holds for every runtime: stored weight bytes, float32 activations
and KV of the chosen type. A runtime's scratch and packing are its own business.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ferrum.core.kv_dtype import KvDtype
from ferrum.plan.model_plan import KvLayer, ModelPlan, WeightSpec
from ferrum.plan.operations import (
    Attention,
    Embed,
    Linear,
    Multiply,
    Operation,
    RmsNorm,
    Rope,
    input_buffers,
    operand_weights,
)

ACTIVATION_BYTES: Final = 4
KV_VALUE_BYTES: Mapping[KvDtype, int] = MappingProxyType({KvDtype.F16: 2, KvDtype.INT8: 1})
# Of each token's K and of its V, in each head.
KV_SCALE_BYTES: Mapping[KvDtype, int] = MappingProxyType({KvDtype.F16: 0, KvDtype.INT8: 4})


@dataclass(frozen=True, slots=True)
class OperationCost:
    """One operation for one token whose attention sees ``num_keys`` keys (see ``plan_cost``)."""

    operation: Operation
    weight_bytes: int
    kv_bytes: int
    activation_bytes: int
    multiply_adds: int

    @property
    def num_bytes(self) -> int:
        """All bytes read and written."""
        return self.weight_bytes + self.kv_bytes + self.activation_bytes


@dataclass(frozen=True, slots=True)
class PlanCost:
    """``operations`` in the plan's order. A weight used twice is resident once and read twice."""

    num_keys: int
    kv_dtype: KvDtype
    operations: tuple[OperationCost, ...]
    resident_weight_bytes: int
    kv_bytes_per_token: int

    @property
    def weight_bytes(self) -> int:
        return sum(cost.weight_bytes for cost in self.operations)

    @property
    def kv_bytes(self) -> int:
        return sum(cost.kv_bytes for cost in self.operations)

    @property
    def activation_bytes(self) -> int:
        return sum(cost.activation_bytes for cost in self.operations)

    @property
    def num_bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes + self.activation_bytes

    @property
    def multiply_adds(self) -> int:
        return sum(cost.multiply_adds for cost in self.operations)


def plan_cost(plan: ModelPlan, num_keys: int = 1, kv_dtype: KvDtype = KvDtype.F16) -> PlanCost:
    """The cost of decoding one token that is the ``num_keys``-th of its sequence."""
    widths = {buffer.name: buffer.width for buffer in plan.buffers}
    weights = {weight.name: weight for weight in plan.weights}
    return PlanCost(
        num_keys=num_keys,
        kv_dtype=kv_dtype,
        operations=tuple(
            _cost(operation, widths, weights, num_keys, kv_dtype) for operation in plan.operations
        ),
        resident_weight_bytes=sum(weight_bytes(weight) for weight in plan.weights),
        kv_bytes_per_token=plan_kv_bytes_per_token(plan, kv_dtype),
    )


def weight_bytes(weight: WeightSpec) -> int:
    """Bytes of the stored weight."""
    return math.prod(weight.shape[:-1]) * weight.type.row_bytes(weight.shape[-1])


def kv_bytes_per_token(layer: KvLayer, kv_dtype: KvDtype = KvDtype.F16) -> int:
    """Bytes that one token's K and V take in one layer."""
    head_bytes = layer.head_width * KV_VALUE_BYTES[kv_dtype] + KV_SCALE_BYTES[kv_dtype]
    return 2 * layer.num_heads * head_bytes


def plan_kv_bytes_per_token(plan: ModelPlan, kv_dtype: KvDtype = KvDtype.F16) -> int:
    """Bytes that one token's K and V take in all layers."""
    return sum(kv_bytes_per_token(layer, kv_dtype) for layer in plan.kv_layers)


def _cost(
    operation: Operation,
    widths: Mapping[str, int],
    weights: Mapping[str, WeightSpec],
    num_keys: int,
    kv_dtype: KvDtype,
) -> OperationCost:
    width = widths[operation.out]
    activations = width + sum(widths[name] for name in input_buffers(operation))
    read = sum(weight_bytes(weights[name]) for name in operand_weights(operation))
    kv_read = 0
    match operation:
        case Embed():
            # One row of the table.
            table = weights[operation.table]
            read = table.type.row_bytes(table.shape[-1])
            multiply_adds = width
        case Linear():
            multiply_adds = math.prod(weights[operation.weight].shape)
        case Attention():
            visible = num_keys if operation.window is None else min(num_keys, operation.window)
            layer = KvLayer(operation.num_kv_heads, operation.head_width, operation.window)
            # Reads K and V of every visible key, the token's own included, after writing the latter.
            kv_read = (visible + 1) * kv_bytes_per_token(layer, kv_dtype)
            multiply_adds = 2 * visible * operation.num_heads * operation.head_width
        case RmsNorm() | Rope():
            multiply_adds = 2 * width
        case Multiply():
            multiply_adds = width
        case _:
            multiply_adds = 0
    return OperationCost(operation, read, kv_read, activations * ACTIVATION_BYTES, multiply_adds)
