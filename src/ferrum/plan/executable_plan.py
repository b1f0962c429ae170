"""ExecutablePlan: what a native step runs, still over the authored plan's buffer names.

Lowering writes it; a runtime turns its operations into kernels. Nothing here computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ferrum.plan.model_plan import ModelPlan
from ferrum.plan.operations import (
    Activation,
    Add,
    Attention,
    Embed,
    Linear,
    Multiply,
    RmsNorm,
    Rope,
    SelectOutputRows,
    SoftCap,
)


class RowSpace(StrEnum):
    """What the rows of a buffer are: the step's tokens, or its outputs."""

    TOKENS = "tokens"
    OUTPUTS = "outputs"


@dataclass(frozen=True, slots=True)
class Quantize:
    """``x`` quantised per row and 32 values, for linears on quantised weights."""

    x: str


@dataclass(frozen=True, slots=True)
class StoreKv:
    """k and v of the step's rows rounded into the layer's cache."""

    layer: int
    k: str
    v: str


RowWiseOperation = Embed | RmsNorm | Add | Multiply | Activation | Rope | SoftCap | SelectOutputRows
RowWise = RowWiseOperation | StoreKv | Quantize


@dataclass(frozen=True, slots=True)
class RowChain:
    """Row-wise operations done one row at a time.

    ``is_replicable``: cheap and without effect outside its buffers, so that in a step of few rows every
    thread may do it for itself, into copies of those buffers, instead of waiting for the others.
    ``follows_group``: the group of linears before it does the same steps in a step of few rows, and then the
    chain is left out; whole rows are cheaper where there are many.
    """

    space: RowSpace
    is_replicable: bool
    steps: tuple[RowWise, ...]
    follows_group: bool = False


@dataclass(frozen=True, slots=True)
class LinearGroup:
    """Linears over one input: all on quantised weights, reading quantised rows, or all on float weights.

    ``then``: what in a step of few rows whoever computed some columns of all the linears goes on to do with
    them, while they are in its cache and nobody else's: steps whose every value depends on the same column,
    or group of 32, of those linears alone. The chain after the group has them too.
    """

    x: str
    is_quantized: bool
    space: RowSpace
    linears: tuple[Linear, ...]
    then: tuple[RowWise, ...] = ()


ExecutableOperation = RowChain | LinearGroup | Attention


@dataclass(frozen=True, slots=True)
class Storage:
    """Memory that buffers with lifetimes apart share: ``width`` values a row.

    ``is_replicated``: written by replicable chains only; each thread has a copy.
    """

    width: int
    space: RowSpace
    is_replicated: bool


@dataclass(frozen=True, slots=True)
class ExecutablePlan:
    """Operations in order, and which storage each float32 buffer and each quantised copy lives in."""

    authored: ModelPlan
    operations: tuple[ExecutableOperation, ...]
    storages: tuple[Storage, ...]
    storage_of: dict[str, int]
    quantized_storages: tuple[Storage, ...]
    quantized_storage_of: dict[str, int]
