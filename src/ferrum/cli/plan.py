"""``ferrum plan``: a model's forward pass, operation by operation, with what each costs."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ferrum import environment
from ferrum.cli.download_progress import DownloadProgress
from ferrum.cli.model_options import KvDtypeOption, ModelArgument
from ferrum.core.kv_dtype import KvDtype
from ferrum.models.architectures import build_plan
from ferrum.plan.cost import OperationCost, PlanCost, plan_cost
from ferrum.plan.model_plan import ModelPlan, WeightSpec
from ferrum.plan.operations import operand_weights
from ferrum.weights.checkpoint import open_checkpoint
from ferrum.weights.model_store import ModelStore
from ferrum.weights.open_model import open_model

# A pipe has no width of its own; no column may be cut there.
PIPE_WIDTH = 200


def plan(
    model: ModelArgument,
    depth: Annotated[
        int, typer.Option(help="Tokens of the sequence so far, for attention's share.", min=1)
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    kv_dtype: KvDtypeOption = KvDtype.F16,
) -> None:
    """Print MODEL's operations with shapes, weight types, bytes and arithmetic for one token, and totals."""
    resolved = open_model(model, ModelStore(environment.model_directory()), DownloadProgress())
    with open_checkpoint(resolved.path) as checkpoint:
        written = build_plan(checkpoint)
    cost = plan_cost(written, depth, kv_dtype)
    if as_json:
        print(json.dumps(plan_as_json(written, cost), indent=2))
        return
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    console.print(_table(written, cost))
    for line in summary(written, cost):
        console.print(line, highlight=False, markup=False)


def plan_as_json(written: ModelPlan, cost: PlanCost) -> dict[str, object]:
    """The same figures for programs; counts are of one token."""
    widths = {buffer.name: buffer.width for buffer in written.buffers}
    weights = {weight.name: weight for weight in written.weights}
    return {
        "architecture": written.architecture,
        "plan_hash": written.hash(),
        "context_length": written.context_length,
        "vocabulary_size": written.vocabulary_size,
        "depth": cost.num_keys,
        "kv_dtype": cost.kv_dtype,
        "operations": [
            {
                "kind": one.operation.kind,
                "out": one.operation.out,
                "width": widths[one.operation.out],
                "weights": [
                    {"name": name, "type": weights[name].type.name, "shape": list(weights[name].shape)}
                    for name in operand_weights(one.operation)
                ],
                "weight_bytes": one.weight_bytes,
                "kv_bytes": one.kv_bytes,
                "activation_bytes": one.activation_bytes,
                "multiply_adds": one.multiply_adds,
            }
            for one in cost.operations
        ],
        "totals": {
            "resident_weight_bytes": cost.resident_weight_bytes,
            "kv_bytes_per_token": cost.kv_bytes_per_token,
            "weight_bytes": cost.weight_bytes,
            "kv_bytes": cost.kv_bytes,
            "activation_bytes": cost.activation_bytes,
            "multiply_adds": cost.multiply_adds,
        },
    }


def summary(written: ModelPlan, cost: PlanCost) -> list[str]:
    """The totals in words."""
    full_context = cost.kv_bytes_per_token * written.context_length
    return [
        f"{written.architecture}: {len(written.operations)} operations, {len(written.kv_layers)} KV layers, "
        f"vocabulary {written.vocabulary_size:,}, context {written.context_length:,}",
        f"weights: {cost.resident_weight_bytes:,} bytes; KV: {cost.kv_bytes_per_token:,} bytes per token "
        f"({cost.kv_dtype}), {full_context:,} for the whole context",
        f"one token at depth {cost.num_keys:,}: {cost.num_bytes:,} bytes "
        f"({cost.weight_bytes:,} of weights, {cost.kv_bytes:,} of KV, {cost.activation_bytes:,} of "
        f"activations), {cost.multiply_adds:,} multiply-adds",
        f"plan {written.hash()}",
    ]


def _table(written: ModelPlan, cost: PlanCost) -> Table:
    widths = {buffer.name: buffer.width for buffer in written.buffers}
    weights = {weight.name: weight for weight in written.weights}
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("operation", "output", "weight"):
        table.add_column(heading, no_wrap=True)
    for heading in ("width", "weight bytes", "KV bytes", "activation bytes", "multiply-adds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in cost.operations:
        described = " + ".join(_described(weights[name]) for name in operand_weights(one.operation))
        table.add_row(one.operation.kind, one.operation.out, described, *_figures(one, widths))
    return table


def _figures(one: OperationCost, widths: dict[str, int]) -> tuple[str, ...]:
    figures = (
        widths[one.operation.out],
        one.weight_bytes,
        one.kv_bytes,
        one.activation_bytes,
        one.multiply_adds,
    )
    return tuple(f"{figure:,}" for figure in figures)


def _described(weight: WeightSpec) -> str:
    return f"{weight.type.name} {'x'.join(str(length) for length in weight.shape)}"
