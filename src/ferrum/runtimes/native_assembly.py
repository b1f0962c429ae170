"""Hands an executable plan to the native runtime: names become ids, operations become native operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

import numpy as np

from ferrum import _native
from ferrum.core.arrays import FloatArray
from ferrum.core.kv_dtype import KvDtype
from ferrum.plan.executable_plan import (
    ExecutablePlan,
    LinearGroup,
    Quantize,
    RowChain,
    RowSpace,
    RowWise,
    StoreKv,
)
from ferrum.plan.operations import (
    Activation,
    ActivationKind,
    Add,
    Attention,
    Embed,
    Linear,
    Multiply,
    RmsNorm,
    Rope,
    RopeStyle,
    SelectOutputRows,
    SoftCap,
)
from ferrum.runtimes.native_memory import packed_weight_bytes
from ferrum.runtimes.weight_loading import WeightLoading
from ferrum.weights.block_formats import dequantize
from ferrum.weights.quantized_tensor import QuantizedTensor

_Kind = _native.RowStepKind

_KV_TYPES = {KvDtype.F16: _native.KvType.F16, KvDtype.INT8: _native.KvType.INT8}
_ACTIVATIONS = {ActivationKind.SILU: _Kind.SILU, ActivationKind.GELU_TANH: _Kind.GELU_TANH}


def assemble(
    plan: ExecutablePlan,
    tensors: Mapping[str, QuantizedTensor],
    runtime: _native.Runtime,
    kv_dtype: KvDtype,
) -> None:
    """Adds the plan's memory, weights and operations to ``runtime`` and finishes it."""
    _Assembly(plan, tensors, runtime).run(kv_dtype)


class _Ids:
    """Ids given out once a name, by calling ``add``; mutable.

    ``add`` comes with each call: kept, it would tie assembly, runtime and checkpoint into a cycle, and
    only the garbage collector would free them.
    """

    def __init__(self) -> None:
        self._ids: dict[Any, int] = {}

    def of(self, key: Any, add: Callable[[Any], int]) -> int:
        if key not in self._ids:
            self._ids[key] = add(key)
        return self._ids[key]

    def of_new(self, keys: Sequence[Any], add: Callable[[Sequence[Any]], Sequence[int]]) -> None:
        """Gives all of them ids with one call, unless one has its own or comes twice."""
        if len(set(keys)) == len(keys) and self._ids.keys().isdisjoint(keys):
            self._ids.update(zip(keys, add(keys), strict=True))


class _Assembly:
    def __init__(
        self, plan: ExecutablePlan, tensors: Mapping[str, QuantizedTensor], runtime: _native.Runtime
    ) -> None:
        self._plan = plan
        self._tensors = tensors
        self._runtime = runtime
        self._weights = _Ids()
        self._loading = WeightLoading(runtime)
        self._vectors = _Ids()
        self._rope_tables = _Ids()

    def run(self, kv_dtype: KvDtype) -> None:
        plan, runtime = self._plan, self._runtime
        runtime.reserve_weights(packed_weight_bytes(plan.authored))
        for storage in plan.storages:
            is_output = storage.space is RowSpace.OUTPUTS
            runtime.add_buffer(storage.width, is_output, storage.is_replicated)
        for storage in plan.quantized_storages:
            is_output = storage.space is RowSpace.OUTPUTS
            runtime.add_quantized(storage.width, is_output, storage.is_replicated)
        for layer in plan.authored.kv_layers:
            runtime.add_kv_layer(_KV_TYPES[kv_dtype], layer.num_heads, layer.head_width)
        for operation in plan.operations:
            match operation:
                case RowChain():
                    steps = [self._row_step(step) for step in operation.steps]
                    is_output = operation.space is RowSpace.OUTPUTS
                    runtime.add_row_chain(is_output, operation.is_replicable, steps, operation.follows_group)
                case LinearGroup():
                    self._add_linear_group(operation)
                case Attention():
                    runtime.add_attention(self._attention_shape(operation))
                case _:
                    assert_never(operation)
        self._loading.pack()
        runtime.finish(self._buffer(plan.authored.logits), plan.authored.vocabulary_size)

    def _buffer(self, name: str) -> int:
        return self._plan.storage_of[name]

    def _weight(self, name: str) -> int:
        return self._weights.of(name, lambda name: self._loading.add([self._tensors[name]])[0])

    def _add_by_turns(self, names: Sequence[str]) -> range:
        return self._loading.add([self._tensors[name] for name in names])

    def _vector(self, name: str) -> int:
        return self._vectors.of(name, lambda name: self._runtime.add_vector(self._values(name)))

    def _rope_table(self, frequencies: tuple[float, ...]) -> int:
        return self._rope_tables.of(frequencies, lambda key: self._runtime.add_rope_table(np.array(key)))

    def _values(self, name: str) -> FloatArray:
        return dequantize(self._tensors[name]).reshape(-1)

    def _add_linear_group(self, group: LinearGroup) -> None:
        if group.then:
            self._weights.of_new([linear.weight for linear in group.linears], self._add_by_turns)
        segments = [self._segment(linear) for linear in group.linears]
        x = self._plan.quantized_storage_of[group.x] if group.is_quantized else self._buffer(group.x)
        then = [self._row_step(step) for step in group.then]
        self._runtime.add_linear_group(x, group.is_quantized, group.space is RowSpace.OUTPUTS, segments, then)

    def _segment(self, linear: Linear) -> _native.LinearSegment:
        bias = -1 if linear.bias is None else self._vector(linear.bias)
        return _native.LinearSegment(
            weight=self._weight(linear.weight), out=self._buffer(linear.out), bias=bias
        )

    def _attention_shape(self, attention: Attention) -> _native.AttentionShape:
        return _native.AttentionShape(
            q=self._buffer(attention.q),
            out=self._buffer(attention.out),
            kv_layer=attention.layer,
            num_heads=attention.num_heads,
            scale=attention.scale,
            window=attention.window or 0,
            soft_cap=attention.soft_cap or 0.0,
        )

    def _row_step(self, step: RowWise) -> _native.RowStep:
        buffer, make = self._buffer, _native.RowStep
        match step:
            case Embed():
                return make(_Kind.EMBED, buffer(step.out), weight=self._weight(step.table), factor=step.scale)
            case RmsNorm():
                return make(
                    _Kind.RMS_NORM,
                    buffer(step.out),
                    a=buffer(step.x),
                    weight=self._vector(step.weight),
                    group_width=step.group_width or 0,
                    factor=step.epsilon,
                )
            case Add():
                return make(_Kind.ADD, buffer(step.out), a=buffer(step.a), b=buffer(step.b))
            case Multiply():
                return make(_Kind.MULTIPLY, buffer(step.out), a=buffer(step.a), b=buffer(step.b))
            case Activation():
                return make(_ACTIVATIONS[step.function], buffer(step.out), a=buffer(step.x))
            case SoftCap():
                return make(_Kind.SOFT_CAP, buffer(step.out), a=buffer(step.x), factor=step.cap)
            case Rope():
                return make(
                    _Kind.ROPE,
                    buffer(step.out),
                    a=buffer(step.x),
                    weight=self._rope_table(step.inverse_frequencies),
                    group_width=step.head_width,
                    interleaved=step.style is RopeStyle.INTERLEAVED,
                )
            case SelectOutputRows():
                return make(_Kind.SELECT, buffer(step.out), a=buffer(step.x))
            case StoreKv():
                return make(_Kind.STORE_KV, step.layer, a=buffer(step.k), b=buffer(step.v))
            case Quantize():
                return make(_Kind.QUANTIZE, self._plan.quantized_storage_of[step.x], a=buffer(step.x))
            case _:
                assert_never(step)
