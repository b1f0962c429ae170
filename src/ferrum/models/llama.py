"""The Llama family as GGUF files hold it: Llama 2 and 3, SmolLM2, Mistral.

H. Touvron et al., "Llama 2", 2023; A. Dubey et al., "The Llama 3 herd of models", 2024; A. Jiang et al.,
"Mistral 7B", 2023. GGUF's q and k rows are permuted so that rotary pairs are neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ferrum.models.model_metadata import ModelMetadata
from ferrum.models.rope_frequencies import linear_scaling_factor, rope_frequencies, with_factors
from ferrum.models.shared_layers import gated_feed_forward, output_head
from ferrum.plan.model_plan import Buffer, ModelPlan
from ferrum.plan.operations import ActivationKind, RopeStyle
from ferrum.plan.plan_builder import PlanBuilder
from ferrum.weights.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """What the metadata says, checked. Widths count values, ``window`` keys (None: all)."""

    num_layers: int
    width: int
    hidden_width: int
    num_heads: int
    num_kv_heads: int
    head_width: int
    rope_width: int
    rope_base: float
    rope_factor: float
    epsilon: float
    window: int | None

    @staticmethod
    def read(metadata: ModelMetadata) -> LlamaConfig:
        """Raises MalformedCheckpoint naming the key, or UnsupportedModel."""
        if metadata.optional_count("expert_count") is not None:
            raise metadata.unsupported("a mixture of experts is not supported yet")
        width = metadata.count("embedding_length")
        num_heads = metadata.count("attention.head_count")
        num_kv_heads = metadata.count("attention.head_count_kv", num_heads)
        if num_heads % num_kv_heads:
            raise metadata.malformed(
                "attention.head_count_kv", f"must divide {num_heads}, not {num_kv_heads}"
            )
        head_width = metadata.head_width(max(1, width // num_heads))
        rope_width = metadata.count("rope.dimension_count", head_width, most=head_width)
        if rope_width % 2:
            raise metadata.malformed("rope.dimension_count", f"must be even, not {rope_width}")
        return LlamaConfig(
            num_layers=metadata.count("block_count"),
            width=width,
            hidden_width=metadata.count("feed_forward_length"),
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_width=head_width,
            rope_width=rope_width,
            rope_base=metadata.positive("rope.freq_base", 10000.0),
            rope_factor=linear_scaling_factor(metadata),
            epsilon=metadata.positive("attention.layer_norm_rms_epsilon"),
            window=metadata.optional_count("attention.sliding_window"),
        )


def build_llama(checkpoint: Checkpoint, context_length: int) -> ModelPlan:
    """The forward pass."""
    config = LlamaConfig.read(ModelMetadata(checkpoint))
    plan = PlanBuilder(checkpoint)
    frequencies = rope_frequencies(config.rope_width, config.rope_base, config.rope_factor)
    if plan.has_weight("rope_freqs"):
        factors = plan.values("rope_freqs", len(frequencies))
        frequencies = with_factors(frequencies, factors, str(checkpoint.path))
    x = plan.embed("token_embd", config.width)
    for layer in range(config.num_layers):
        block = f"blk.{layer}"
        normed = plan.rms_norm(x, f"{block}.attn_norm", config.epsilon)
        x = plan.add(x, _attention(plan, normed, block, config, frequencies))
        normed = plan.rms_norm(x, f"{block}.ffn_norm", config.epsilon)
        x = plan.add(x, gated_feed_forward(plan, normed, block, config.hidden_width, ActivationKind.SILU))
    x = plan.rms_norm(plan.select_output_rows(x), "output_norm", config.epsilon)
    return plan.finish(output_head(plan, x), context_length)


def _attention(
    plan: PlanBuilder, x: Buffer, block: str, config: LlamaConfig, frequencies: tuple[float, ...]
) -> Buffer:
    head_width = config.head_width
    q = plan.linear(x, f"{block}.attn_q", config.num_heads * head_width)
    k = plan.linear(x, f"{block}.attn_k", config.num_kv_heads * head_width)
    v = plan.linear(x, f"{block}.attn_v", config.num_kv_heads * head_width)
    q = plan.rope(q, head_width, RopeStyle.INTERLEAVED, frequencies)
    k = plan.rope(k, head_width, RopeStyle.INTERLEAVED, frequencies)
    scale = 1 / math.sqrt(head_width)
    attended = plan.attention(q, k, v, head_width=head_width, scale=scale, window=config.window)
    return plan.linear(attended, f"{block}.attn_output", config.width)
