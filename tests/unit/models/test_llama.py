"""The Llama family's plan: what is where, and with which numbers."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from ferrum.models.architectures import build_plan
from ferrum.plan.model_plan import ModelPlan
from ferrum.plan.operations import ActivationKind, Attention, Linear, Rope, RopeStyle
from ferrum.weights.checkpoint import open_checkpoint
from ferrum.weights.tensor_types import TensorType
from tiny_models import VOCABULARY, float_tensor, llama_metadata, write_tiny_llama

LAYER = [
    "rms_norm",
    "linear",
    "linear",
    "linear",
    "rope",
    "rope",
    "attention",
    "linear",
    "add",
    "rms_norm",
    "linear",
    "activation",
    "linear",
    "multiply",
    "linear",
    "add",
]


def plan_of(path: Path) -> ModelPlan:
    return build_plan(open_checkpoint(path))


def test_the_forward_pass_is_the_published_one(tmp_path: Path) -> None:
    plan = plan_of(write_tiny_llama(tmp_path / "m.gguf"))
    kinds = [operation.kind for operation in plan.operations]
    assert kinds == ["embed", *LAYER, *LAYER, "select_output_rows", "rms_norm", "linear"]
    assert plan.vocabulary_size == VOCABULARY


def test_ropes_are_interleaved_and_scores_scaled_by_the_head_width(tmp_path: Path) -> None:
    plan = plan_of(write_tiny_llama(tmp_path / "m.gguf"))
    ropes = [one for one in plan.operations if isinstance(one, Rope)]
    assert {rope.style for rope in ropes} == {RopeStyle.INTERLEAVED}
    assert ropes[0].inverse_frequencies == pytest.approx([10000 ** (-2 * i / 16) for i in range(8)])
    attention = next(one for one in plan.operations if isinstance(one, Attention))
    assert attention.scale == pytest.approx(1 / math.sqrt(16))
    assert attention.window is None
    activation = next(one for one in plan.operations if one.kind == "activation")
    assert activation.function is ActivationKind.SILU


def test_the_head_is_the_embedding_unless_there_is_an_output_matrix(tmp_path: Path) -> None:
    tied = plan_of(write_tiny_llama(tmp_path / "tied.gguf")).operations[-1]
    own = plan_of(write_tiny_llama(tmp_path / "own.gguf", has_output=True)).operations[-1]
    assert isinstance(tied, Linear)
    assert isinstance(own, Linear)
    assert (tied.weight, own.weight) == ("token_embd.weight", "output.weight")


def test_biases_are_taken_along(tmp_path: Path) -> None:
    plan = plan_of(write_tiny_llama(tmp_path / "m.gguf", has_biases=True))
    biases = [one.bias for one in plan.operations if isinstance(one, Linear) and one.bias is not None]
    assert biases[:4] == [f"blk.0.attn_{name}.bias" for name in ("q", "k", "v", "output")]


def test_linear_scaling_divides_every_frequency(tmp_path: Path) -> None:
    scaled = llama_metadata(rope__scaling__type="linear", rope__scaling__factor=4.0)
    without = llama_metadata(rope__scaling__type="none", rope__scaling__factor=4.0)
    for metadata, factor in ((scaled, 4.0), (without, 1.0)):
        plan = plan_of(write_tiny_llama(tmp_path / "m.gguf", metadata=metadata))
        rope = next(one for one in plan.operations if isinstance(one, Rope))
        assert rope.inverse_frequencies[0] == 1 / factor


def test_rope_factors_divide_their_own_frequency(tmp_path: Path) -> None:
    factors = np.arange(1, 9)
    more = {"rope_freqs.weight": float_tensor(TensorType.F32, factors)}
    plan = plan_of(write_tiny_llama(tmp_path / "m.gguf", more_tensors=more))
    rope = next(one for one in plan.operations if isinstance(one, Rope))
    expected = [10000 ** (-2 * i / 16) / factors[i] for i in range(8)]
    assert rope.inverse_frequencies == pytest.approx(expected)
    assert "rope_freqs.weight" not in {spec.name for spec in plan.weights}


def test_a_sliding_window_is_every_layers(tmp_path: Path) -> None:
    metadata = llama_metadata(attention__sliding_window=24)
    plan = plan_of(write_tiny_llama(tmp_path / "m.gguf", metadata=metadata))
    assert [layer.window for layer in plan.kv_layers] == [24, 24]
