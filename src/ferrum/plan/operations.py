"""The primitive operations an authored plan is made of.

An operation is a value: it names the buffers it reads and writes and the weights it needs, and computes
nothing. A buffer is a float32 matrix with one row per token of the step; its width is fixed by the plan. What
each operation computes, to the last bit, is in docs/numerics.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class ActivationKind(StrEnum):
    SILU = "silu"
    GELU_TANH = "gelu_tanh"


class RopeStyle(StrEnum):
    """Which values of a head form a pair: (2i, 2i+1) or (i, i + D/2)."""

    INTERLEAVED = "interleaved"
    HALF = "half"


@dataclass(frozen=True, slots=True)
class Embed:
    """out[t] = table[token_ids[t]] * scale."""

    kind: ClassVar[str] = "embed"
    out: str
    table: str
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """Root-mean-square norm of each row, or of each ``group_width`` values of it with one weight for all."""

    kind: ClassVar[str] = "rms_norm"
    out: str
    x: str
    weight: str
    epsilon: float
    group_width: int | None = None


@dataclass(frozen=True, slots=True)
class Linear:
    """out = x @ weight.T (+ bias); weight is [output width, input width]."""

    kind: ClassVar[str] = "linear"
    out: str
    x: str
    weight: str
    bias: str | None = None


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotates the first ``2 * len(inverse_frequencies)`` values of each head by position * frequency.

    Frequencies hold every scaling rule already (linear, llama3, ...): they depend on configuration, never on
    the length of the current sequence.
    """

    kind: ClassVar[str] = "rope"
    out: str
    x: str
    head_width: int
    style: RopeStyle
    inverse_frequencies: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Attention:
    """Causal attention of q over the layer's cached K and V, which take this step's k and v first.

    ``window``: number of visible keys, the query's own included; None = all.
    ``soft_cap``: cap * tanh(score / cap).
    """

    kind: ClassVar[str] = "attention"
    out: str
    q: str
    k: str
    v: str
    layer: int
    num_heads: int
    num_kv_heads: int
    head_width: int
    scale: float
    window: int | None = None
    soft_cap: float | None = None


@dataclass(frozen=True, slots=True)
class Activation:
    kind: ClassVar[str] = "activation"
    out: str
    x: str
    function: ActivationKind


@dataclass(frozen=True, slots=True)
class Multiply:
    kind: ClassVar[str] = "multiply"
    out: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class Add:
    kind: ClassVar[str] = "add"
    out: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class SelectOutputRows:
    """Keeps the rows whose logits the step wants; later buffers have one row per output."""

    kind: ClassVar[str] = "select_output_rows"
    out: str
    x: str


@dataclass(frozen=True, slots=True)
class SoftCap:
    """out = cap * tanh(x / cap)."""

    kind: ClassVar[str] = "soft_cap"
    out: str
    x: str
    cap: float


Operation = (
    Embed | RmsNorm | Linear | Rope | Attention | Activation | Multiply | Add | SelectOutputRows | SoftCap
)

_INPUT_FIELDS = ("x", "a", "b", "q", "k", "v")
_WEIGHT_FIELDS = ("table", "weight", "bias")


def input_buffers(operation: Operation) -> tuple[str, ...]:
    """The buffers an operation reads, in the order of its fields."""
    return tuple(getattr(operation, field) for field in _INPUT_FIELDS if hasattr(operation, field))


def operand_weights(operation: Operation) -> tuple[str, ...]:
    """The weights an operation reads."""
    names = (getattr(operation, field, None) for field in _WEIGHT_FIELDS)
    return tuple(name for name in names if name is not None)
