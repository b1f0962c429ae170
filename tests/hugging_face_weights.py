"""A GGUF checkpoint as Hugging Face lays models out: configuration, names, rows of q and k. No torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ferrum.core.arrays import FloatArray
from ferrum.weights.block_formats import dequantize
from ferrum.weights.checkpoint import Checkpoint

SHARED_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
LLAMA_NAMES = SHARED_NAMES | {"ffn_norm": "post_attention_layernorm"}
GEMMA3_NAMES = SHARED_NAMES | {
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


@dataclass(frozen=True, slots=True)
class HuggingFaceLayout:
    """``config``: fields of config.json. ``convert`` is told a GGUF tensor's short name, such as "attn_q"."""

    config: Mapping[str, Any]
    names: Mapping[str, str]
    convert: Callable[[str, FloatArray], FloatArray]

    def weights_of(self, checkpoint: Checkpoint) -> Iterator[tuple[str, FloatArray]]:
        """The checkpoint's dequantised values under Hugging Face's names."""
        for name, tensor in checkpoint.tensors.items():
            *block, short, kind = name.split(".")
            if short == "rope_freqs":
                continue
            prefix = f"model.layers.{block[1]}." if block else ""
            yield f"{prefix}{self.names[short]}.{kind}", self.convert(short, np.array(dequantize(tensor)))


def unpermuted(values: FloatArray, num_heads: int) -> FloatArray:
    """Undoes what GGUF does to q and k rows: neighbours (2i, 2i + 1) go back to (i, i + half a head)."""
    heads = values.reshape(num_heads, -1, 2, *values.shape[1:])
    return np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(values.shape)


def llama_layout(checkpoint: Checkpoint) -> HuggingFaceLayout:
    metadata = checkpoint.metadata
    heads = metadata.get_int("llama.attention.head_count")
    kv_heads = metadata.get_int("llama.attention.head_count_kv")
    width = metadata.get_int("llama.embedding_length")
    config = {
        "vocab_size": checkpoint.tensors["token_embd.weight"].shape[0],
        "hidden_size": width,
        "intermediate_size": metadata.get_int("llama.feed_forward_length"),
        "num_hidden_layers": metadata.get_int("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": metadata.get_int("llama.attention.key_length", width // heads),
        "rms_norm_eps": metadata.get_float("llama.attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": metadata.get_int("llama.context_length"),
        "tie_word_embeddings": "output.weight" not in checkpoint.tensors,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": metadata.get_float("llama.rope.freq_base"),
        },
    }

    def convert(short: str, values: FloatArray) -> FloatArray:
        counts = {"attn_q": heads, "attn_k": kv_heads}
        return unpermuted(values, counts[short]) if short in counts else values

    return HuggingFaceLayout(config, LLAMA_NAMES, convert)


def gemma3_layout(checkpoint: Checkpoint) -> HuggingFaceLayout:
    metadata = checkpoint.metadata
    layers = metadata.get_int("gemma3.block_count")
    head_width = metadata.get_int("gemma3.attention.key_length")
    base = metadata.get_float("gemma3.rope.freq_base")
    config = {
        "vocab_size": checkpoint.tensors["token_embd.weight"].shape[0],
        "hidden_size": metadata.get_int("gemma3.embedding_length"),
        "intermediate_size": metadata.get_int("gemma3.feed_forward_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": metadata.get_int("gemma3.attention.head_count"),
        "num_key_value_heads": metadata.get_int("gemma3.attention.head_count_kv"),
        "head_dim": head_width,
        "query_pre_attn_scalar": head_width,
        "rms_norm_eps": metadata.get_float("gemma3.attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": metadata.get_int("gemma3.context_length"),
        "sliding_window": metadata.get_int("gemma3.attention.sliding_window"),
        "layer_types": ["full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in range(layers)],
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": base},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    }

    def convert(short: str, values: FloatArray) -> FloatArray:
        return values - np.float32(1) if short.endswith("norm") else values

    return HuggingFaceLayout(config, GEMMA3_NAMES, convert)
