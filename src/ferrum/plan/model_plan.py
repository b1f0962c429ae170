"""ModelPlan: a model's forward pass as an immutable list of operations over named buffers.

Everything else (running it, its memory, its predicted speed, its identity) is derived from this value.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from ferrum.plan.operations import Operation
from ferrum.weights.tensor_types import TensorType


@dataclass(frozen=True, slots=True)
class Buffer:
    """A float32 matrix [rows of the step, width]; after SelectOutputRows the rows are the step's outputs."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class WeightSpec:
    """A weight the plan needs: its stored type and shape (rows, columns) or (columns,)."""

    name: str
    type: TensorType
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KvLayer:
    """K and V of one attention layer: num_heads * head_width values each a token; ``window`` keys visible."""

    num_heads: int
    head_width: int
    window: int | None


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """The authored plan. ``logits`` names the buffer of the final logits; build it with PlanBuilder."""

    architecture: str
    operations: tuple[Operation, ...]
    buffers: tuple[Buffer, ...]
    weights: tuple[WeightSpec, ...]
    kv_layers: tuple[KvLayer, ...]
    logits: str
    vocabulary_size: int
    context_length: int

    def buffer_width(self, name: str) -> int:
        return next(buffer.width for buffer in self.buffers if buffer.name == name)

    def hash(self) -> str:
        """SHA-256 over the plan written out; equal for equal plans on any machine."""
        written = {
            "architecture": self.architecture,
            "operations": [[operation.kind, asdict(operation)] for operation in self.operations],
            "buffers": [[buffer.name, buffer.width] for buffer in self.buffers],
            "weights": [[weight.name, weight.type.name, weight.shape] for weight in self.weights],
            "kv_layers": [asdict(layer) for layer in self.kv_layers],
            "logits": self.logits,
            "vocabulary_size": self.vocabulary_size,
            "context_length": self.context_length,
        }
        return hashlib.sha256(json.dumps(written, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """What caches, sessions and traces are keyed by: equal only if results are equal bit for bit."""

    plan_hash: str
    weights_digest: str
    numerics_id: str

    def __str__(self) -> str:
        joined = f"{self.plan_hash}:{self.weights_digest}:{self.numerics_id}"
        return hashlib.sha256(joined.encode()).hexdigest()[:32]
