"""Gemma 3 as GGUF files hold it (Gemma Team, "Gemma 3 technical report", 2025).

GGUF's norm weights hold the architecture's +1 already; rotary pairs are half a head apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from ferrum.models.model_metadata import ModelMetadata
from ferrum.models.rope_frequencies import linear_scaling_factor, rope_frequencies
from ferrum.models.shared_layers import gated_feed_forward, output_head
from ferrum.plan.model_plan import Buffer, ModelPlan
from ferrum.plan.operations import ActivationKind, RopeStyle
from ferrum.plan.plan_builder import PlanBuilder
from ferrum.weights.checkpoint import Checkpoint

# The published 27B model alone scales its scores by width / heads instead of the head width, which its GGUF
# metadata does not say; it alone has this many layers.
_LAYERS_OF_27B: Final = 62


@dataclass(frozen=True, slots=True)
class Gemma3Config:
    """What the metadata says, checked. Each ``pattern``-th layer sees all keys, the others ``window``."""

    num_layers: int
    width: int
    hidden_width: int
    num_heads: int
    num_kv_heads: int
    head_width: int
    global_frequencies: tuple[float, ...]
    local_frequencies: tuple[float, ...]
    epsilon: float
    window: int | None
    pattern: int
    score_scale: float
    score_cap: float | None
    logit_cap: float | None

    @staticmethod
    def read(metadata: ModelMetadata) -> Gemma3Config:
        """Raises MalformedCheckpoint naming the key, or UnsupportedModel."""
        num_layers = metadata.count("block_count")
        width = metadata.count("embedding_length")
        num_heads = metadata.count("attention.head_count")
        num_kv_heads = metadata.count("attention.head_count_kv", num_heads)
        if num_heads % num_kv_heads:
            raise metadata.malformed(
                "attention.head_count_kv", f"must divide {num_heads}, not {num_kv_heads}"
            )
        head_width = metadata.head_width(256)
        if head_width % 2:
            raise metadata.malformed("attention.key_length", f"must be even, not {head_width}")
        score_width = width / num_heads if num_layers == _LAYERS_OF_27B else head_width
        global_base = metadata.positive("rope.freq_base", 1_000_000.0)
        local_base = metadata.positive("rope.freq_base_swa", 10_000.0)
        return Gemma3Config(
            num_layers=num_layers,
            width=width,
            hidden_width=metadata.count("feed_forward_length"),
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_width=head_width,
            global_frequencies=rope_frequencies(head_width, global_base, linear_scaling_factor(metadata)),
            local_frequencies=rope_frequencies(head_width, local_base),
            epsilon=metadata.positive("attention.layer_norm_rms_epsilon"),
            window=metadata.optional_count("attention.sliding_window"),
            pattern=metadata.count("attention.sliding_window_pattern", 6),
            score_scale=1 / math.sqrt(score_width),
            score_cap=metadata.optional_positive("attn_logit_softcapping"),
            logit_cap=metadata.optional_positive("final_logit_softcapping"),
        )

    def is_global(self, layer: int) -> bool:
        return self.window is None or (layer + 1) % self.pattern == 0


def build_gemma3(checkpoint: Checkpoint, context_length: int) -> ModelPlan:
    """The forward pass."""
    config = Gemma3Config.read(ModelMetadata(checkpoint))
    plan = PlanBuilder(checkpoint)
    embedding_scale = float(np.float32(math.sqrt(config.width)))
    x = plan.embed("token_embd", config.width, embedding_scale)
    for layer in range(config.num_layers):
        block = f"blk.{layer}"
        normed = plan.rms_norm(x, f"{block}.attn_norm", config.epsilon)
        attended = _attention(plan, normed, layer, config)
        x = plan.add(x, plan.rms_norm(attended, f"{block}.post_attention_norm", config.epsilon))
        normed = plan.rms_norm(x, f"{block}.ffn_norm", config.epsilon)
        fed = gated_feed_forward(plan, normed, block, config.hidden_width, ActivationKind.GELU_TANH)
        x = plan.add(x, plan.rms_norm(fed, f"{block}.post_ffw_norm", config.epsilon))
    x = plan.rms_norm(plan.select_output_rows(x), "output_norm", config.epsilon)
    logits = output_head(plan, x)
    if config.logit_cap is not None:
        logits = plan.soft_cap(logits, config.logit_cap)
    return plan.finish(logits, context_length)


def _attention(plan: PlanBuilder, x: Buffer, layer: int, config: Gemma3Config) -> Buffer:
    block, head_width = f"blk.{layer}", config.head_width
    frequencies = config.global_frequencies if config.is_global(layer) else config.local_frequencies
    q = plan.linear(x, f"{block}.attn_q", config.num_heads * head_width)
    k = plan.linear(x, f"{block}.attn_k", config.num_kv_heads * head_width)
    v = plan.linear(x, f"{block}.attn_v", config.num_kv_heads * head_width)
    q = plan.rms_norm(q, f"{block}.attn_q_norm", config.epsilon, group_width=head_width)
    k = plan.rms_norm(k, f"{block}.attn_k_norm", config.epsilon, group_width=head_width)
    attended = plan.attention(
        plan.rope(q, head_width, RopeStyle.HALF, frequencies),
        plan.rope(k, head_width, RopeStyle.HALF, frequencies),
        v,
        head_width=head_width,
        scale=config.score_scale,
        window=None if config.is_global(layer) else config.window,
        soft_cap=config.score_cap,
    )
    return plan.linear(attended, f"{block}.attn_output", config.width)
