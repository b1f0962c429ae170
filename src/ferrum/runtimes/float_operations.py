"""The operations in plain float32 on dequantised weights: the reference of quality, not of bits.

What Hugging Face transformers computes in float32, with sums in whatever order the library likes.
"""

from __future__ import annotations

import math

import numpy as np

from ferrum.core.arrays import FloatArray, Int32Array
from ferrum.plan.operations import ActivationKind, RopeStyle
from ferrum.runtimes.exact_attention import visible_keys
from ferrum.runtimes.exact_operations import rope_pairs


def rms_norm_float(x: FloatArray, weight: FloatArray, epsilon: float, group_width: int | None) -> FloatArray:
    """``x`` [rows, columns]; groups of ``group_width`` values are normed one by one."""
    grouped = x.reshape(len(x), -1, x.shape[1] if group_width is None else group_width)
    mean = np.square(grouped).mean(axis=-1, keepdims=True)
    normed: FloatArray = grouped / np.sqrt(mean + np.float32(epsilon)) * weight
    return normed.reshape(x.shape)


def rope_float(
    x: FloatArray,
    positions: Int32Array,
    head_width: int,
    style: RopeStyle,
    inverse_frequencies: tuple[float, ...],
) -> FloatArray:
    """``x`` [rows, heads * head_width]."""
    angles = positions.astype(np.float64)[:, None, None] * np.array(inverse_frequencies, np.float64)
    cosines, sines = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    first, second = rope_pairs(style, len(inverse_frequencies))
    heads = x.reshape(len(x), -1, head_width)
    a, b = heads[..., first], heads[..., second]
    rotated = heads.copy()
    rotated[..., first] = a * cosines - b * sines
    rotated[..., second] = a * sines + b * cosines
    return rotated.reshape(x.shape)


def attention_float(
    q: FloatArray,
    keys: FloatArray,
    values: FloatArray,
    positions: Int32Array,
    *,
    scale: float,
    window: int | None,
    soft_cap: float | None,
) -> FloatArray:
    """Shapes as in ``attention_exact``; keys and values are float32."""
    rows, num_heads, width = q.shape
    num_kv_heads = keys.shape[1]
    # [kv heads, heads of the group and rows, width]: each K head is multiplied once for its group.
    grouped = q.reshape(rows, num_kv_heads, -1, width).transpose(1, 2, 0, 3).reshape(num_kv_heads, -1, width)
    scores = np.matmul(grouped * np.float32(scale), keys.transpose(1, 2, 0))
    if soft_cap is not None:
        scores = np.float32(soft_cap) * np.tanh(scores / np.float32(soft_cap))
    visible = visible_keys(positions, np.arange(len(keys), dtype=np.int32), window)
    scores = scores.reshape(num_kv_heads, -1, rows, len(keys))
    scores[:, :, ~visible] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    result = np.matmul(weights.reshape(num_kv_heads, -1, len(keys)), values.transpose(1, 0, 2))
    result = result.reshape(num_kv_heads, -1, rows, width).transpose(2, 0, 1, 3)
    return np.ascontiguousarray(result).reshape(rows, num_heads, width)


def activation_float(x: FloatArray, function: ActivationKind) -> FloatArray:
    match function:
        case ActivationKind.SILU:
            with np.errstate(over="ignore"):
                return np.asarray(x / (1 + np.exp(-x)), np.float32)
        case ActivationKind.GELU_TANH:
            cubic = np.float32(0.044715) * x * x * x
            return np.asarray(0.5 * x * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * (x + cubic))))
