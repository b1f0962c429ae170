"""Time of each kind of operation of a step, beside what its bytes and its arithmetic allow."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from ferrum.bench.floor import Ceilings
from ferrum.bench.step_work import StepRows
from ferrum.core.kv_dtype import KvDtype
from ferrum.plan.cost import kv_bytes_per_token, weight_bytes
from ferrum.plan.executable_plan import ExecutableOperation, ExecutablePlan, LinearGroup, RowChain, RowSpace
from ferrum.plan.model_plan import KvLayer, WeightSpec
from ferrum.plan.operations import Attention
from ferrum.plan.work_part import WorkPart

ROPE_TABLES = "rope tables"
CHOICE = "choice of tokens"


@dataclass(frozen=True, slots=True)
class OperationPrediction:
    """Seconds by the ceilings. Row-wise work has none: it stays in the caches."""

    bytes_s: float
    arithmetic_s: float

    @property
    def seconds(self) -> float:
        return max(self.bytes_s, self.arithmetic_s)


_Measured = tuple[str, float, OperationPrediction | None]


@dataclass(frozen=True, slots=True)
class ProfileLine:
    """All operations of one kind in all steps. ``calls`` counts an operation once a step."""

    kind: str
    calls: int
    seconds: float
    prediction: OperationPrediction | None

    @property
    def ratio(self) -> float | None:
        """How many times the prediction it took."""
        if self.prediction is None or self.prediction.seconds == 0:
            return None
        return self.seconds / self.prediction.seconds

    def as_json(self, total_s: float) -> dict[str, object]:
        prediction = self.prediction
        return {
            "kind": self.kind,
            "calls": self.calls,
            "ms": self.seconds * 1e3,
            "share": self.seconds / total_s if total_s else 0.0,
            "predicted_bytes_ms": prediction.bytes_s * 1e3 if prediction else None,
            "predicted_arithmetic_ms": prediction.arithmetic_s * 1e3 if prediction else None,
            "predicted_ms": prediction.seconds * 1e3 if prediction else None,
            "ratio": self.ratio,
        }


def profile_lines(
    plan: ExecutablePlan,
    seconds: Sequence[float],
    steps: Sequence[StepRows],
    ceilings: Ceilings,
    kv_dtype: KvDtype = KvDtype.F16,
) -> list[ProfileLine]:
    """One line for each kind, longest first.

    ``seconds`` as ``NativeRuntime.stop_timing`` gives them, of all ``steps`` together.
    """
    assert len(seconds) == len(plan.operations) + 2, (len(seconds), len(plan.operations))
    weights = {weight.name: weight for weight in plan.authored.weights}
    measured: list[_Measured] = [(ROPE_TABLES, seconds[0], None), (CHOICE, seconds[-1], None)]
    for operation, took in zip(plan.operations, seconds[1:-1], strict=True):
        several = [_prediction(operation, weights, step, ceilings, kv_dtype) for step in steps]
        measured.append((label_of(operation, weights), took, _sum(several)))
    measured.sort(key=lambda one: one[0])
    lines = [
        _line(kind, list(group), len(steps)) for kind, group in groupby(measured, key=lambda one: one[0])
    ]
    return sorted(lines, key=lambda line: -line.seconds)


def label_of(operation: ExecutableOperation, weights: Mapping[str, WeightSpec]) -> str:
    """What operations of different layers have in common: "linear attn_q + attn_k Q4_1"."""
    if isinstance(operation, LinearGroup):
        names = [re.sub(r"^blk\.\d+\.|\.weight$", "", linear.weight) for linear in operation.linears]
        types = dict.fromkeys(weights[linear.weight].type.name for linear in operation.linears)
        return f"linear {' + '.join(names)} {'/'.join(types)}"
    if isinstance(operation, RowChain):
        names = [re.sub(r"(?<!^)(?=[A-Z])", "_", type(step).__name__).lower() for step in operation.steps]
        return "rows: " + " ".join(names)
    window = f" window {operation.window}" if operation.window else ""
    return f"attention{window}"


def _line(kind: str, measured: Sequence[_Measured], num_steps: int) -> ProfileLine:
    return ProfileLine(
        kind=kind,
        calls=len(measured) * num_steps,
        seconds=sum(seconds for _, seconds, _ in measured),
        prediction=_sum([prediction for _, _, prediction in measured]),
    )


def _sum(predictions: Sequence[OperationPrediction | None]) -> OperationPrediction | None:
    known = [prediction for prediction in predictions if prediction is not None]
    if not known:
        return None
    return OperationPrediction(sum(each.bytes_s for each in known), sum(each.arithmetic_s for each in known))


def _prediction(
    operation: ExecutableOperation,
    weights: Mapping[str, WeightSpec],
    step: StepRows,
    ceilings: Ceilings,
    kv_dtype: KvDtype,
) -> OperationPrediction | None:
    if isinstance(operation, RowChain):
        return None
    if isinstance(operation, LinearGroup):
        rows = step.num_outputs if operation.space is RowSpace.OUTPUTS else step.num_tokens
        specs = [weights[linear.weight] for linear in operation.linears]
        read = sum(weight_bytes(spec) for spec in specs) if rows else 0
        arithmetic_s = sum(
            2 * rows * spec.shape[0] * spec.shape[1] / ceilings.linear_operations[spec.type] for spec in specs
        )
        return OperationPrediction(read / ceilings.read_bytes_per_second, arithmetic_s)
    return _attention_prediction(operation, step.parts, ceilings, kv_dtype)


def _attention_prediction(
    attention: Attention, parts: Sequence[WorkPart], ceilings: Ceilings, kv_dtype: KvDtype
) -> OperationPrediction:
    layer = KvLayer(attention.num_kv_heads, attention.head_width, attention.window)
    read = sum(part.num_read_keys(attention.window) for part in parts) * kv_bytes_per_token(layer, kv_dtype)
    pairs = sum(part.num_visible_keys(attention.window) for part in parts)
    operations = 4 * pairs * attention.num_heads * attention.head_width
    return OperationPrediction(
        read / ceilings.read_bytes_per_second, operations / ceilings.attention_operations
    )
