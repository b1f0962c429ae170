"""Layers that several architectures write down in the same way."""

from __future__ import annotations

from ferrum.plan.model_plan import Buffer
from ferrum.plan.operations import ActivationKind
from ferrum.plan.plan_builder import PlanBuilder


def gated_feed_forward(
    plan: PlanBuilder, x: Buffer, block: str, hidden_width: int, function: ActivationKind
) -> Buffer:
    """``down(function(gate(x)) * up(x))`` (N. Shazeer, "GLU variants improve transformer", 2020)."""
    gate = plan.activation(plan.linear(x, f"{block}.ffn_gate", hidden_width), function)
    up = plan.linear(x, f"{block}.ffn_up", hidden_width)
    return plan.linear(plan.multiply(gate, up), f"{block}.ffn_down", x.width)


def output_head(plan: PlanBuilder, x: Buffer) -> Buffer:
    """Logits; a checkpoint without an output matrix shares the embedding's."""
    head = "output" if plan.has_weight("output") else "token_embd"
    return plan.linear(x, head, plan.num_rows("token_embd"))
