"""What the native runtime will take before it is built: packed weights, and the scratch of its largest step.

The same sums as native/runtime; a test holds them against the bytes of a built runtime.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ferrum import _native
from ferrum.plan.executable_plan import ExecutablePlan, RowSpace, Storage
from ferrum.plan.model_plan import ModelPlan
from ferrum.plan.operations import Attention, Rope

_FLOAT_BYTES: Final = 4
_CANDIDATE_BYTES: Final = 8
_ROW_PADDING: Final = 16
_GROUP: Final = 32
# A scale, a sum and a scaled sum of 32 codes; the two latter twice, by 16 codes.
_GROUP_FIGURES: Final = 7
_REPLICATED_ROWS: Final = 2
_TASKS_PER_MEMBER: Final = 16
_PIECE_TOKENS: Final = 128


@dataclass(frozen=True, slots=True)
class StepLimits:
    """The largest step a runtime takes: rows, and rows whose logits are wanted. Arenas are sized by it."""

    max_tokens: int = 512
    max_outputs: int = 64

    def rows(self, space: RowSpace) -> int:
        return self.max_tokens if space is RowSpace.TOKENS else self.max_outputs


def packed_weight_bytes(plan: ModelPlan) -> int:
    """Bytes of the plan's matrices in the kernels' layout."""
    matrices = (weight for weight in plan.weights if len(weight.shape) == 2)
    return sum(_native.packed_bytes(weight.type.ggml_id, *weight.shape) for weight in matrices)


def scratch_bytes(plan: ExecutablePlan, limits: StepLimits, context_length: int, num_threads: int) -> int:
    """Bytes of buffers, rope tables and attention's working memory; reserved, touched as steps need them."""
    floats = sum(_float_bytes(storage, limits, num_threads) for storage in plan.storages)
    codes = sum(_code_bytes(storage, limits, num_threads) for storage in plan.quantized_storages)
    ropes = {op.inverse_frequencies for op in plan.authored.operations if isinstance(op, Rope)}
    tables = sum(2 * limits.max_tokens * len(frequencies) * _FLOAT_BYTES for frequencies in ropes)
    attentions = [op for op in plan.authored.operations if isinstance(op, Attention)]
    partials = max((_partial_bytes(op, context_length, num_threads) for op in attentions), default=0)
    return floats + codes + tables + partials


def sampling_bytes(plan: ModelPlan, num_threads: int) -> int:
    """What choosing a token works in, for each thread: weights and candidates of a whole vocabulary."""
    return (_FLOAT_BYTES + _CANDIDATE_BYTES) * plan.vocabulary_size * num_threads


def repetition_bytes(context_length: int, num_threads: int) -> int:
    """What looking for repetitions works in, for each thread: the lengths of those in a whole context."""
    return _FLOAT_BYTES * context_length * num_threads


def _padded(width: int, multiple: int) -> int:
    return -(-width // multiple) * multiple


def _float_bytes(storage: Storage, limits: StepLimits, num_threads: int) -> int:
    copy_rows = _REPLICATED_ROWS * num_threads if storage.is_replicated else 0
    rows = max(limits.rows(storage.space), copy_rows)
    return rows * _padded(storage.width, _ROW_PADDING) * _FLOAT_BYTES


def _code_bytes(storage: Storage, limits: StepLimits, num_threads: int) -> int:
    rows = limits.rows(storage.space)
    if storage.is_replicated:
        rows += (num_threads - 1) * _REPLICATED_ROWS
    padded = _padded(storage.width, _GROUP)
    return rows * (padded + padded // _GROUP * _GROUP_FIGURES * _FLOAT_BYTES)


def _partial_bytes(attention: Attention, context_length: int, num_threads: int) -> int:
    """A state (maximum, sum, output) for each query head of a row and each piece of the split tiles."""
    queries = attention.num_heads // attention.num_kv_heads
    pieces = -(-context_length // _PIECE_TOKENS) + 1
    return _TASKS_PER_MEMBER * num_threads * pieces * queries * (2 + attention.head_width) * _FLOAT_BYTES
