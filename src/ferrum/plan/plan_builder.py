"""PlanBuilder: how an architecture file writes its forward pass down, one method for each operation.

Knows the checkpoint's tensors and checks the type and shape of each against what the architecture expects.
"""

from __future__ import annotations

from ferrum.core.arrays import FloatArray
from ferrum.core.errors import MalformedCheckpoint, UnsupportedModel
from ferrum.plan.model_plan import Buffer, KvLayer, ModelPlan, WeightSpec
from ferrum.plan.operations import (
    Activation,
    ActivationKind,
    Add,
    Attention,
    Embed,
    Linear,
    Multiply,
    Operation,
    RmsNorm,
    Rope,
    RopeStyle,
    SelectOutputRows,
    SoftCap,
)
from ferrum.weights.block_formats import dequantize
from ferrum.weights.checkpoint import Checkpoint
from ferrum.weights.quantized_tensor import QuantizedTensor


class PlanBuilder:
    """Collects operations, buffers and weights; a method appends an operation and returns its buffer.

    Weights are named without ``.weight``; a linear takes its ``.bias`` along when the checkpoint has one.
    Every method raises MalformedCheckpoint for a tensor that is missing or has another shape than the
    metadata says, and UnsupportedModel for one of a type the operation cannot use. Widths of buffers that do
    not fit each other are a bug of the architecture file, not of the checkpoint, and fail an assertion.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._operations: list[Operation] = []
        self._buffers: dict[str, Buffer] = {}
        self._weights: dict[str, WeightSpec] = {}
        self._kv_layers: list[KvLayer] = []
        self._read_tensors: set[str] = set()

    def embed(self, table: str, width: int, scale: float = 1.0) -> Buffer:
        """The table's rows for the step's tokens, times ``scale``."""
        weight = self._weight(table, (self.num_rows(table), width))
        out = self._buffer(table, width)
        self._operations.append(Embed(out.name, weight, scale))
        return out

    def rms_norm(self, x: Buffer, weight: str, epsilon: float, group_width: int | None = None) -> Buffer:
        """Norm of each row, or of each ``group_width`` values of it."""
        width = x.width if group_width is None else group_width
        assert x.width % width == 0, (x, group_width)
        name = self._vector(f"{weight}.weight", width)
        out = self._buffer(weight, x.width)
        self._operations.append(RmsNorm(out.name, x.name, name, epsilon, group_width))
        return out

    def linear(self, x: Buffer, weight: str, width: int) -> Buffer:
        """``x`` times the transposed weight [width, x.width], plus the bias if there is one."""
        name = self._weight(weight, (width, x.width))
        bias = self._vector(f"{weight}.bias", width) if f"{weight}.bias" in self._checkpoint.tensors else None
        out = self._buffer(weight, width)
        self._operations.append(Linear(out.name, x.name, name, bias))
        return out

    def rope(self, x: Buffer, head_width: int, style: RopeStyle, frequencies: tuple[float, ...]) -> Buffer:
        """Each head of ``x`` turned by position * frequency."""
        assert x.width % head_width == 0, (x, head_width)
        assert 2 * len(frequencies) <= head_width, (x, len(frequencies))
        out = self._buffer(f"{x.name}.rope", x.width)
        self._operations.append(Rope(out.name, x.name, head_width, style, frequencies))
        return out

    def attention(
        self,
        q: Buffer,
        k: Buffer,
        v: Buffer,
        *,
        head_width: int,
        scale: float,
        window: int | None = None,
        soft_cap: float | None = None,
    ) -> Buffer:
        """Causal attention; opens the next KV layer, which stores ``k`` and ``v``."""
        num_heads, num_kv_heads = q.width // head_width, k.width // head_width
        assert q.width == num_heads * head_width, (q, head_width)
        assert k.width == v.width == num_kv_heads * head_width, (k, v, head_width)
        assert num_heads % num_kv_heads == 0, (q, k)
        layer = len(self._kv_layers)
        self._kv_layers.append(KvLayer(num_kv_heads, head_width, window))
        out = self._buffer(f"attention.{layer}", q.width)
        self._operations.append(
            Attention(
                out=out.name,
                q=q.name,
                k=k.name,
                v=v.name,
                layer=layer,
                num_heads=num_heads,
                num_kv_heads=num_kv_heads,
                head_width=head_width,
                scale=scale,
                window=window,
                soft_cap=soft_cap,
            )
        )
        return out

    def activation(self, x: Buffer, function: ActivationKind) -> Buffer:
        out = self._buffer(f"{x.name}.{function}", x.width)
        self._operations.append(Activation(out.name, x.name, function))
        return out

    def multiply(self, a: Buffer, b: Buffer) -> Buffer:
        assert a.width == b.width, (a, b)
        out = self._buffer(f"{b.name}.multiply", a.width)
        self._operations.append(Multiply(out.name, a.name, b.name))
        return out

    def add(self, a: Buffer, b: Buffer) -> Buffer:
        assert a.width == b.width, (a, b)
        out = self._buffer(f"{b.name}.add", a.width)
        self._operations.append(Add(out.name, a.name, b.name))
        return out

    def select_output_rows(self, x: Buffer) -> Buffer:
        """Only the rows whose logits the step wants."""
        out = self._buffer("output_rows", x.width)
        self._operations.append(SelectOutputRows(out.name, x.name))
        return out

    def soft_cap(self, x: Buffer, cap: float) -> Buffer:
        out = self._buffer(f"{x.name}.soft_cap", x.width)
        self._operations.append(SoftCap(out.name, x.name, cap))
        return out

    def has_weight(self, weight: str) -> bool:
        return f"{weight}.weight" in self._checkpoint.tensors

    def num_rows(self, weight: str) -> int:
        """Rows of a matrix whose number only the tensor itself tells (the vocabulary)."""
        tensor = self._tensor(f"{weight}.weight")
        if len(tensor.shape) != 2:
            raise self._wrong_shape(tensor, "two dimensions")
        return tensor.shape[0]

    def values(self, weight: str, width: int) -> FloatArray:
        """The values of a small tensor that shapes the plan itself, such as rope factors: [width]."""
        return dequantize(self._tensor(self._vector(f"{weight}.weight", width, is_operand=False)))

    def finish(self, logits: Buffer, context_length: int) -> ModelPlan:
        """The finished plan.

        Raises UnsupportedModel when the checkpoint holds a tensor that no operation reads: a part of the
        model would be left out silently.
        """
        unread = sorted(set(self._checkpoint.tensors) - self._read_tensors)
        if unread:
            raise UnsupportedModel(
                str(self._checkpoint.path),
                f"tensor {unread[0]!r} is not part of architecture {self._checkpoint.architecture!r} as this "
                f"build knows it ({len(unread)} such); running without it would give wrong answers",
            )
        return ModelPlan(
            architecture=self._checkpoint.architecture,
            operations=tuple(self._operations),
            buffers=tuple(self._buffers.values()),
            weights=tuple(self._weights.values()),
            kv_layers=tuple(self._kv_layers),
            logits=logits.name,
            vocabulary_size=logits.width,
            context_length=context_length,
        )

    def _buffer(self, name: str, width: int) -> Buffer:
        count = 1
        unique = name
        while unique in self._buffers:
            count += 1
            unique = f"{name}.{count}"
        return self._buffers.setdefault(unique, Buffer(unique, width))

    def _weight(self, weight: str, shape: tuple[int, int]) -> str:
        tensor = self._tensor(f"{weight}.weight")
        if tensor.shape != shape:
            raise self._wrong_shape(tensor, f"shape {_written(shape)} by the metadata")
        self._weights[tensor.name] = WeightSpec(tensor.name, tensor.type, tensor.shape)
        return tensor.name

    def _vector(self, name: str, width: int, *, is_operand: bool = True) -> str:
        tensor = self._tensor(name)
        if tensor.shape != (width,):
            raise self._wrong_shape(tensor, f"{width} values by the metadata")
        if tensor.type.is_quantized:
            raise UnsupportedModel(
                str(self._checkpoint.path),
                f"tensor {name!r} is stored as {tensor.type.name}; norms, biases and factors must be "
                f"F32, F16 or BF16",
            )
        if is_operand:
            self._weights[name] = WeightSpec(name, tensor.type, tensor.shape)
        return name

    def _tensor(self, name: str) -> QuantizedTensor:
        tensor = self._checkpoint.tensors.get(name)
        if tensor is None:
            raise MalformedCheckpoint(
                str(self._checkpoint.path),
                f"tensor {name!r} is missing, and architecture {self._checkpoint.architecture!r} needs it",
            )
        self._read_tensors.add(name)
        return tensor

    def _wrong_shape(self, tensor: QuantizedTensor, expected: str) -> MalformedCheckpoint:
        return MalformedCheckpoint(
            str(self._checkpoint.path),
            f"tensor {tensor.name!r} has shape {_written(tensor.shape)}, but should have {expected}",
        )


def _written(shape: tuple[int, ...]) -> str:
    return "x".join(str(length) for length in shape)
