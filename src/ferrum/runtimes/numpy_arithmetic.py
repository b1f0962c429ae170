"""The two ways the NumPy interpreter computes an operation: plain float32, or the kernels' bits."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from ferrum.core.arrays import FloatArray, Int32Array
from ferrum.core.float_math import soft_cap32
from ferrum.core.kv_dtype import KvDtype
from ferrum.plan.operations import Activation, Attention, Embed, Linear, RmsNorm, Rope, SoftCap
from ferrum.runtimes.exact_attention import attention_exact
from ferrum.runtimes.exact_linear import embed_exact, linear_exact
from ferrum.runtimes.exact_operations import ACTIVATIONS, rms_norm_exact, rope_exact
from ferrum.runtimes.float_operations import activation_float, attention_float, rms_norm_float, rope_float
from ferrum.runtimes.paged_kv import CachedRows
from ferrum.weights.block_formats import GroupedWeights, decode_groups, dequantize
from ferrum.weights.quantized_tensor import QuantizedTensor

_KV_TYPES: Mapping[KvDtype, DTypeLike] = MappingProxyType({KvDtype.F16: np.float16, KvDtype.INT8: np.int8})


class Arithmetic(Protocol):
    """Computes one operation on arrays [rows, width]; a decoded weight is kept for the next step."""

    @property
    def kv_type(self) -> DTypeLike: ...
    def embed(self, operation: Embed, token_ids: Int32Array) -> FloatArray: ...
    def rms_norm(self, operation: RmsNorm, x: FloatArray) -> FloatArray: ...
    def linear(self, operation: Linear, x: FloatArray) -> FloatArray: ...
    def rope(self, operation: Rope, x: FloatArray, positions: Int32Array) -> FloatArray: ...
    def attention(
        self,
        operation: Attention,
        q: FloatArray,
        keys: CachedRows,
        values: CachedRows,
        positions: Int32Array,
    ) -> FloatArray: ...
    def activation(self, operation: Activation, x: FloatArray) -> FloatArray: ...
    def soft_cap(self, operation: SoftCap, x: FloatArray) -> FloatArray: ...


class FloatArithmetic:
    """Float32 on dequantised weights, K and V kept in float32."""

    kv_type: DTypeLike = np.float32

    def __init__(self, tensors: Mapping[str, QuantizedTensor]) -> None:
        self._tensors = tensors
        self._values: dict[str, FloatArray] = {}

    def embed(self, operation: Embed, token_ids: Int32Array) -> FloatArray:
        return embed_exact(self._tensors[operation.table], token_ids, operation.scale)

    def rms_norm(self, operation: RmsNorm, x: FloatArray) -> FloatArray:
        weight = self._weight(operation.weight)
        return rms_norm_float(x, weight, operation.epsilon, operation.group_width)

    def linear(self, operation: Linear, x: FloatArray) -> FloatArray:
        result: FloatArray = x @ self._weight(operation.weight).T
        return result if operation.bias is None else result + self._weight(operation.bias)

    def rope(self, operation: Rope, x: FloatArray, positions: Int32Array) -> FloatArray:
        return rope_float(x, positions, operation.head_width, operation.style, operation.inverse_frequencies)

    def attention(
        self,
        operation: Attention,
        q: FloatArray,
        keys: CachedRows,
        values: CachedRows,
        positions: Int32Array,
    ) -> FloatArray:
        return attention_float(
            q,
            keys.values,
            values.values,
            positions,
            scale=operation.scale,
            window=operation.window,
            soft_cap=operation.soft_cap,
        )

    def activation(self, operation: Activation, x: FloatArray) -> FloatArray:
        return activation_float(x, operation.function)

    def soft_cap(self, operation: SoftCap, x: FloatArray) -> FloatArray:
        cap = np.float32(operation.cap)
        return np.asarray(cap * np.tanh(x / cap), np.float32)

    def _weight(self, name: str) -> FloatArray:
        if name not in self._values:
            self._values[name] = dequantize(self._tensors[name])
        return self._values[name]


class ExactArithmetic:
    """docs/numerics.md to the last bit, K and V kept as ``kv_dtype`` says."""

    def __init__(self, tensors: Mapping[str, QuantizedTensor], kv_dtype: KvDtype) -> None:
        self.kv_type: DTypeLike = _KV_TYPES[kv_dtype]
        self._tensors = tensors
        self._matrices: dict[str, GroupedWeights | FloatArray] = {}

    def embed(self, operation: Embed, token_ids: Int32Array) -> FloatArray:
        return embed_exact(self._tensors[operation.table], token_ids, operation.scale)

    def rms_norm(self, operation: RmsNorm, x: FloatArray) -> FloatArray:
        return rms_norm_exact(x, self._vector(operation.weight), operation.epsilon, operation.group_width)

    def linear(self, operation: Linear, x: FloatArray) -> FloatArray:
        name = operation.weight
        if name not in self._matrices:
            tensor = self._tensors[name]
            self._matrices[name] = decode_groups(tensor) if tensor.type.is_quantized else dequantize(tensor)
        bias = None if operation.bias is None else self._vector(operation.bias)
        return linear_exact(x, self._matrices[name], bias)

    def rope(self, operation: Rope, x: FloatArray, positions: Int32Array) -> FloatArray:
        return rope_exact(x, positions, operation.head_width, operation.style, operation.inverse_frequencies)

    def attention(
        self,
        operation: Attention,
        q: FloatArray,
        keys: CachedRows,
        values: CachedRows,
        positions: Int32Array,
    ) -> FloatArray:
        return attention_exact(
            q,
            keys,
            values,
            positions,
            scale=operation.scale,
            window=operation.window,
            soft_cap=operation.soft_cap,
        )

    def activation(self, operation: Activation, x: FloatArray) -> FloatArray:
        return ACTIVATIONS[operation.function](x)

    def soft_cap(self, operation: SoftCap, x: FloatArray) -> FloatArray:
        return soft_cap32(x, operation.cap)

    def _vector(self, name: str) -> FloatArray:
        return dequantize(self._tensors[name])
