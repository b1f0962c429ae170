"""What a step of a plan reads and computes, summed up once so that a scheduler can ask for every step.

bench/step_work.py counts the same by kind of weight and operation, for reports.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ferrum.core.kv_dtype import KvDtype
from ferrum.plan.cost import kv_bytes_per_token, weight_bytes
from ferrum.plan.executable_plan import RowSpace
from ferrum.plan.lowering import row_spaces
from ferrum.plan.model_plan import KvLayer, ModelPlan
from ferrum.plan.operations import Attention, Linear
from ferrum.plan.work_part import WorkPart


class Work(NamedTuple):
    """Bytes read and multiply-adds; the four things that take time in a step."""

    weight_bytes: int
    linear_multiply_adds: int
    kv_bytes: int
    attention_multiply_adds: int


@dataclass(frozen=True, slots=True)
class AttentionWork:
    """All attention operations of one window together; None = they see everything."""

    window: int | None
    key_bytes: int  # K and V of one token
    pair_multiply_adds: int  # of one query that sees one key


@dataclass(frozen=True, slots=True)
class PlanWork:
    """The work of a plan's steps. Weights are read once for all rows, the head only computes output rows."""

    weight_bytes: int
    token_multiply_adds: int
    output_multiply_adds: int
    attention: tuple[AttentionWork, ...]

    def of(self, parts: Iterable[WorkPart], num_outputs: int) -> Work:
        """The work of one step that chooses ``num_outputs`` tokens."""
        kv_bytes = pairs = num_tokens = 0
        for part in parts:
            num_tokens += part.num_tokens
            for group in self.attention:
                kv_bytes += part.num_read_keys(group.window) * group.key_bytes
                pairs += part.num_visible_keys(group.window) * group.pair_multiply_adds
        return self._work(num_tokens, num_outputs, kv_bytes, pairs)

    def of_rows(self, starts: Sequence[int], num_outputs: int) -> Work:
        """The same of a token at each of these positions, all of different sequences; fast for hundreds."""
        kv_bytes = pairs = 0
        for group in self.attention:
            window = group.window
            if window is None:
                num_keys = sum(starts) + len(starts)
            else:
                num_keys = sum([start + 1 if start < window else window for start in starts])
            kv_bytes += num_keys * group.key_bytes
            pairs += num_keys * group.pair_multiply_adds
        return self._work(len(starts), num_outputs, kv_bytes, pairs)

    def _work(self, num_tokens: int, num_outputs: int, kv_bytes: int, pairs: int) -> Work:
        linear = num_tokens * self.token_multiply_adds + num_outputs * self.output_multiply_adds
        return Work(self.weight_bytes, linear, kv_bytes, pairs)


# For an executor without a plan: all tokens are alike, and what a step and a token cost is learned.
UNIFORM_WORK = PlanWork(weight_bytes=1, token_multiply_adds=1, output_multiply_adds=0, attention=())


def plan_work(plan: ModelPlan, kv_dtype: KvDtype = KvDtype.F16) -> PlanWork:
    """Summed over the plan's operations."""
    weights = {weight.name: weight for weight in plan.weights}
    spaces = row_spaces(plan)
    read_bytes = token_multiply_adds = output_multiply_adds = 0
    attention: dict[int | None, tuple[int, int]] = {}
    for operation in plan.operations:
        match operation:
            case Linear():
                weight = weights[operation.weight]
                read_bytes += weight_bytes(weight)
                if spaces[operation.out] is RowSpace.OUTPUTS:
                    output_multiply_adds += math.prod(weight.shape)
                else:
                    token_multiply_adds += math.prod(weight.shape)
            case Attention():
                layer = KvLayer(operation.num_kv_heads, operation.head_width, operation.window)
                key_bytes, pair = attention.get(operation.window, (0, 0))
                attention[operation.window] = (
                    key_bytes + kv_bytes_per_token(layer, kv_dtype),
                    pair + 2 * operation.num_heads * operation.head_width,
                )
            case _:
                pass
    groups = tuple(AttentionWork(window, *sums) for window, sums in attention.items())
    return PlanWork(read_bytes, token_multiply_adds, output_multiply_adds, groups)
