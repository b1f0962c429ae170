"""Writes tiny random models as GGUF files: every pathway of an architecture in a few kilobytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ferrum.weights.block_formats import dequantize
from ferrum.weights.quantized_tensor import QuantizedTensor
from ferrum.weights.tensor_types import TensorType
from gguf_factory import Tensor, write_gguf

# Where a block keeps its float16 factors, in bytes from its start.
FACTOR_OFFSETS = {
    TensorType.Q4_0: (0,),
    TensorType.Q4_1: (0, 2),
    TensorType.Q5_0: (0,),
    TensorType.Q5_1: (0, 2),
    TensorType.Q8_0: (0,),
    TensorType.Q2_K: (80, 82),
    TensorType.Q3_K: (108,),
    TensorType.Q4_K: (0, 2),
    TensorType.Q5_K: (0, 2),
    TensorType.Q6_K: (208,),
}

VOCABULARY = 96
CONTEXT = 2048


def random_tensor(
    generator: np.random.Generator, kind: TensorType, shape: tuple[int, ...], deviation: float
) -> Tensor:
    """A tensor of random stored bits whose values have about this standard deviation."""
    if not kind.is_quantized:
        return float_tensor(kind, generator.normal(0, deviation, shape))
    rows = math.prod(shape[:-1])
    blocks = generator.integers(0, 256, (rows, kind.row_bytes(shape[-1])), np.uint8)
    blocks = blocks.reshape(-1, kind.block_bytes)
    factors = generator.uniform(0.5, 1.5, (len(blocks), 2))
    if kind in (TensorType.Q4_1, TensorType.Q5_1):
        factors[:, 1] *= -8 if kind is TensorType.Q4_1 else -16  # centres the values
    set_factors(blocks, kind, factors)
    values = dequantize(QuantizedTensor("", kind, shape, blocks.reshape(-1)))
    set_factors(blocks, kind, factors * (deviation / float(values.std())))
    return kind, blocks, shape


def set_factors(blocks: np.ndarray, kind: TensorType, factors: np.ndarray) -> None:
    for index, start in enumerate(FACTOR_OFFSETS[kind]):
        halves = factors[:, index].astype("<f2")
        blocks[:, start : start + 2] = halves.view(np.uint8).reshape(-1, 2)


def float_tensor(kind: TensorType, values: np.ndarray) -> Tensor:
    if kind is TensorType.BF16:
        return kind, (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16), values.shape
    return kind, values.astype("<f4" if kind is TensorType.F32 else "<f2"), values.shape


def llama_metadata(**changes: Any) -> dict[str, Any]:
    """Metadata of the tiny Llama; ``changes`` use __ for a dot, and None removes a key."""
    keys = {
        "context_length": CONTEXT,
        "block_count": 2,
        "embedding_length": 64,
        "feed_forward_length": 96,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
    }
    return _with_changes("llama", keys, changes)


def gemma3_metadata(**changes: Any) -> dict[str, Any]:
    keys = {
        "context_length": CONTEXT,
        "block_count": 7,
        "embedding_length": 64,
        "feed_forward_length": 96,
        "attention.head_count": 2,
        "attention.head_count_kv": 1,
        "attention.key_length": 32,
        "attention.value_length": 32,
        "attention.sliding_window": 40,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1000000.0,
    }
    return _with_changes("gemma3", keys, changes)


def write_tiny_llama(
    path: Path,
    kind: TensorType = TensorType.F32,
    *,
    seed: int = 0,
    metadata: Mapping[str, Any] | None = None,
    has_biases: bool = False,
    has_output: bool = False,
    more_tensors: Mapping[str, Tensor] | None = None,
) -> Path:
    """A Llama whose matrices are of one type; its shapes follow ``metadata``."""
    keys = dict(llama_metadata() if metadata is None else metadata)
    generator = np.random.default_rng(seed)
    width, hidden = keys["llama.embedding_length"], keys["llama.feed_forward_length"]
    head = keys.get("llama.attention.key_length", width // keys["llama.attention.head_count"])
    q_width = keys["llama.attention.head_count"] * head
    kv_width = keys["llama.attention.head_count_kv"] * head
    shapes = {"token_embd": (VOCABULARY, width)}
    norms = {"output_norm": width}
    biases = {}
    if has_output:
        shapes["output"] = (VOCABULARY, width)
    for layer in range(keys["llama.block_count"]):
        block = f"blk.{layer}."
        shapes |= _layer_shapes(block, width, hidden, q_width, kv_width)
        norms |= {f"{block}attn_norm": width, f"{block}ffn_norm": width}
        if has_biases:
            biases |= {f"{block}attn_q": q_width, f"{block}attn_k": kv_width, f"{block}attn_v": kv_width}
            biases |= {f"{block}attn_output": width}
    tensors = _random_tensors(generator, kind, shapes, norms, biases) | dict(more_tensors or {})
    return write_gguf(path, keys, tensors)


def write_tiny_gemma3(
    path: Path,
    kind: TensorType = TensorType.F32,
    *,
    seed: int = 0,
    metadata: Mapping[str, Any] | None = None,
) -> Path:
    """A Gemma 3 with six local layers and a global one."""
    keys = dict(gemma3_metadata() if metadata is None else metadata)
    generator = np.random.default_rng(seed)
    width, hidden = keys["gemma3.embedding_length"], keys["gemma3.feed_forward_length"]
    head = keys["gemma3.attention.key_length"]
    q_width = keys["gemma3.attention.head_count"] * head
    kv_width = keys["gemma3.attention.head_count_kv"] * head
    shapes = {"token_embd": (VOCABULARY, width)}
    norms = {"output_norm": width}
    for layer in range(keys["gemma3.block_count"]):
        block = f"blk.{layer}."
        shapes |= _layer_shapes(block, width, hidden, q_width, kv_width)
        names = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
        norms |= {f"{block}{name}": width for name in names}
        norms |= {f"{block}attn_q_norm": head, f"{block}attn_k_norm": head}
    return write_gguf(path, keys, _random_tensors(generator, kind, shapes, norms, {}))


def _layer_shapes(
    block: str, width: int, hidden: int, q_width: int, kv_width: int
) -> dict[str, tuple[int, int]]:
    return {
        f"{block}attn_q": (q_width, width),
        f"{block}attn_k": (kv_width, width),
        f"{block}attn_v": (kv_width, width),
        f"{block}attn_output": (width, q_width),
        f"{block}ffn_gate": (hidden, width),
        f"{block}ffn_up": (hidden, width),
        f"{block}ffn_down": (width, hidden),
    }


def _random_tensors(
    generator: np.random.Generator,
    kind: TensorType,
    shapes: Mapping[str, tuple[int, int]],
    norms: Mapping[str, int],
    biases: Mapping[str, int],
) -> dict[str, Tensor]:
    tensors = {
        f"{name}.weight": random_tensor(generator, kind, shape, 1.5 / math.sqrt(shape[1]))
        for name, shape in shapes.items()
    }
    for name, width in norms.items():
        tensors[f"{name}.weight"] = float_tensor(TensorType.F32, generator.uniform(0.5, 1.5, width))
    for name, width in biases.items():
        tensors[f"{name}.bias"] = float_tensor(TensorType.F32, generator.normal(0, 0.3, width))
    return tensors


def _with_changes(architecture: str, keys: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    keys |= {key.replace("__", "."): value for key, value in changes.items()}
    kept = {f"{architecture}.{key}": value for key, value in keys.items() if value is not None}
    return {"general.architecture": architecture, **kept}
