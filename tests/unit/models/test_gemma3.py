"""Gemma 3's plan: what is where, and with which numbers."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from ferrum.models.architectures import build_plan
from ferrum.plan.model_plan import ModelPlan
from ferrum.plan.operations import Activation, ActivationKind, Attention, Embed, RmsNorm, Rope, RopeStyle
from ferrum.weights.checkpoint import open_checkpoint
from tiny_models import gemma3_metadata, write_tiny_gemma3

LAYER = [
    "rms_norm",
    "linear",
    "linear",
    "linear",
    "rms_norm",
    "rms_norm",
    "rope",
    "rope",
    "attention",
    "linear",
    "rms_norm",
    "add",
    "rms_norm",
    "linear",
    "activation",
    "linear",
    "multiply",
    "linear",
    "rms_norm",
    "add",
]


def plan_with(tmp_path: Path, **changes: object) -> ModelPlan:
    path = write_tiny_gemma3(tmp_path / "m.gguf", metadata=gemma3_metadata(**changes))
    return build_plan(open_checkpoint(path))


def test_the_forward_pass_is_the_published_one(tmp_path: Path) -> None:
    plan = plan_with(tmp_path)
    kinds = [operation.kind for operation in plan.operations]
    assert kinds == ["embed", *LAYER * 7, "select_output_rows", "rms_norm", "linear"]
    embed = plan.operations[0]
    assert isinstance(embed, Embed)
    assert embed.scale == np.float32(math.sqrt(64))
    activation = next(one for one in plan.operations if isinstance(one, Activation))
    assert activation.function is ActivationKind.GELU_TANH


def test_every_sixth_layer_is_global_with_its_own_rope_base(tmp_path: Path) -> None:
    plan = plan_with(tmp_path, rope__scaling__type="linear", rope__scaling__factor=8.0)
    assert [layer.window for layer in plan.kv_layers] == [40, 40, 40, 40, 40, None, 40]
    ropes = [one for one in plan.operations if isinstance(one, Rope)]
    assert {rope.style for rope in ropes} == {RopeStyle.HALF}
    for index, rope in enumerate(ropes):
        base, factor = (1e6, 8) if index // 2 == 5 else (1e4, 1)
        expected = [base ** (-2 * i / 32) / factor for i in range(16)]
        assert rope.inverse_frequencies == pytest.approx(expected), index


def test_the_local_rope_base_and_the_pattern_come_from_metadata_if_it_has_them(tmp_path: Path) -> None:
    plan = plan_with(tmp_path, rope__freq_base_swa=500.0, attention__sliding_window_pattern=2)
    assert [layer.window for layer in plan.kv_layers] == [40, None, 40, None, 40, None, 40]
    first = next(one for one in plan.operations if isinstance(one, Rope))
    assert first.inverse_frequencies[1] == pytest.approx(500.0 ** (-2 / 32))


def test_queries_and_keys_are_normed_head_by_head(tmp_path: Path) -> None:
    plan = plan_with(tmp_path)
    grouped = [one.weight for one in plan.operations if isinstance(one, RmsNorm) and one.group_width == 32]
    assert grouped[:2] == ["blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight"]
    assert len(grouped) == 14


def test_scores_are_scaled_by_the_head_width_but_in_the_27b_model(tmp_path: Path) -> None:
    def scale(plan: ModelPlan) -> float:
        return next(one.scale for one in plan.operations if isinstance(one, Attention))

    assert scale(plan_with(tmp_path)) == pytest.approx(1 / math.sqrt(32))
    small = {"embedding_length": 32, "feed_forward_length": 32}
    assert scale(plan_with(tmp_path, block_count=62, **small)) == pytest.approx(1 / math.sqrt(32 / 2))


def test_soft_caps_are_used_where_the_metadata_has_them(tmp_path: Path) -> None:
    plan = plan_with(tmp_path, attn_logit_softcapping=50.0, final_logit_softcapping=30.0)
    assert plan.operations[-1].kind == "soft_cap"
    assert plan.logits == plan.operations[-1].out
    assert {one.soft_cap for one in plan.operations if isinstance(one, Attention)} == {50.0}
