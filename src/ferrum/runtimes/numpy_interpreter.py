"""NumpyInterpreter: runs the authored plan with NumPy, as the oracle of quality or of the kernels' bits.

It shares no code with the native runtime and reads the plan as people do: one operation after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from enum import StrEnum

import numpy as np

from ferrum.core.arrays import FloatArray
from ferrum.core.errors import InternalError
from ferrum.core.kv_dtype import KvDtype
from ferrum.plan.model_plan import ModelPlan
from ferrum.plan.operations import (
    Activation,
    Add,
    Attention,
    Embed,
    Linear,
    Multiply,
    Operation,
    RmsNorm,
    Rope,
    SelectOutputRows,
    SoftCap,
    input_buffers,
)
from ferrum.runtimes.exact_log_probabilities import batch_logprobs
from ferrum.runtimes.exact_operations import logit_digest
from ferrum.runtimes.numpy_arithmetic import Arithmetic, ExactArithmetic, FloatArithmetic
from ferrum.runtimes.paged_kv import BLOCK_TOKENS, PagedKv
from ferrum.runtimes.protocol import (
    ChosenTokens,
    LogitsDetail,
    SamplingBatch,
    StepAborted,
    StepBatch,
    StepOutput,
)
from ferrum.weights.quantized_tensor import QuantizedTensor

ChooseTokens = Callable[[FloatArray, SamplingBatch], ChosenTokens]


class InterpreterMode(StrEnum):
    FLOAT = "float"
    QUANTISED_EXACT = "quantised_exact"


def no_sampler(logits: FloatArray, sampling: SamplingBatch) -> ChosenTokens:
    """Stands where no way to choose tokens was given."""
    raise InternalError("this interpreter was built without a sampler; ask it for logits instead")


class NumpyInterpreter:
    """A Runtime (see protocol.py) of ``num_blocks`` KV blocks; mutable: the KV cache and the abort flag.

    ``choose`` picks the tokens of steps that sample: (logits [outputs, vocabulary], instructions) -> ids.
    ``kv_dtype`` is that of the exact mode; the float mode keeps K and V in float32.
    """

    def __init__(
        self,
        plan: ModelPlan,
        tensors: Mapping[str, QuantizedTensor],
        num_blocks: int,
        mode: InterpreterMode = InterpreterMode.FLOAT,
        choose: ChooseTokens = no_sampler,
        kv_dtype: KvDtype = KvDtype.F16,
    ) -> None:
        for spec in plan.weights:
            assert (tensors[spec.name].type, tensors[spec.name].shape) == (spec.type, spec.shape), spec
        self._plan = plan
        self._mode = mode
        self._num_blocks = num_blocks
        self._choose = choose
        self._kv_dtype = kv_dtype
        self._arithmetic: Arithmetic = (
            FloatArithmetic(tensors) if mode is InterpreterMode.FLOAT else ExactArithmetic(tensors, kv_dtype)
        )
        self._kv = PagedKv(plan.kv_layers, num_blocks, self._arithmetic.kv_type)
        self._dead_after = _dead_buffers(plan)
        self._is_aborted = threading.Event()

    @property
    def numerics_id(self) -> str:
        kv = "f32" if self._mode is InterpreterMode.FLOAT else self._kv_dtype
        return f"numpy-{self._mode}-1 kv={kv}"

    @property
    def keeps_same_tokens_law(self) -> bool:
        return self._mode is InterpreterMode.QUANTISED_EXACT

    @property
    def num_blocks(self) -> int:
        return self._num_blocks

    @property
    def block_tokens(self) -> int:
        return BLOCK_TOKENS

    @property
    def context_length(self) -> int:
        return self._plan.context_length

    @property
    def vocabulary_size(self) -> int:
        return self._plan.vocabulary_size

    @property
    def block_bytes(self) -> int:
        return self._kv.block_bytes

    @property
    def layout_id(self) -> str:
        return f"numpy-kv-1 {np.dtype(self._arithmetic.kv_type).name}"

    def copy_block(self, source: int, target: int) -> None:
        self._kv.copy_block(source, target)

    def read_block(self, block: int) -> bytes:
        return self._kv.read_block(block)

    def write_block(self, block: int, content: bytes) -> None:
        self._kv.write_block(block, content)

    def run(self, batch: StepBatch, detail: LogitsDetail = LogitsDetail.NONE) -> StepOutput:
        """See Runtime.run. Raises StepAborted, and InternalError for sampling without a sampler."""
        self._is_aborted.clear()
        logits = self._logits(batch)
        chosen, mirostat_mu = np.zeros(0, np.int32), np.zeros(0, np.float64)
        if batch.sampling is not None and len(logits):
            choices = self._choose(logits, batch.sampling)
            chosen = choices.token_ids
            mirostat_mu = choices.mirostat_mu if batch.sampling.rules is not None else mirostat_mu
        wanted = batch.logprobs
        if wanted is not None:
            chosen = np.where(wanted.known_tokens < 0, chosen, wanted.known_tokens)
        wants_logits, wants_digests = detail is LogitsDetail.FULL, detail is LogitsDetail.DIGEST
        return StepOutput(
            token_ids=chosen,
            logit_digests=logit_digest(logits) if wants_digests else np.zeros(0, np.uint64),
            logits=logits if wants_logits else np.zeros((0, self.vocabulary_size), np.float32),
            logprobs=batch_logprobs(logits, chosen, wanted) if wanted is not None else None,
            mirostat_mu=mirostat_mu,
        )

    def abort(self) -> None:
        self._is_aborted.set()

    def close(self) -> None:
        """Forgets weights and cache; nothing runs afterwards."""
        self._arithmetic = FloatArithmetic({})
        self._kv = PagedKv((), 0, np.float32)

    def _logits(self, batch: StepBatch) -> FloatArray:
        """[outputs, vocabulary]."""
        buffers: dict[str, FloatArray] = {}
        for operation, dead in zip(self._plan.operations, self._dead_after, strict=True):
            if self._is_aborted.is_set():
                raise StepAborted
            if isinstance(operation, SelectOutputRows) and len(batch.output_rows) == 0:
                return np.zeros((0, self.vocabulary_size), np.float32)
            buffers[operation.out] = self._compute(operation, buffers, batch)
            for name in dead:
                del buffers[name]
        return buffers[self._plan.logits]

    def _compute(
        self, operation: Operation, buffers: Mapping[str, FloatArray], batch: StepBatch
    ) -> FloatArray:
        arithmetic = self._arithmetic
        match operation:
            case Embed():
                return arithmetic.embed(operation, batch.token_ids)
            case RmsNorm():
                return arithmetic.rms_norm(operation, buffers[operation.x])
            case Linear():
                return arithmetic.linear(operation, buffers[operation.x])
            case Rope():
                return arithmetic.rope(operation, buffers[operation.x], batch.positions)
            case Attention():
                return self._attention(operation, buffers, batch)
            case Activation():
                return arithmetic.activation(operation, buffers[operation.x])
            case Multiply():
                return buffers[operation.a] * buffers[operation.b]
            case Add():
                return buffers[operation.a] + buffers[operation.b]
            case SelectOutputRows():
                return buffers[operation.x][batch.output_rows]
            case SoftCap():
                return arithmetic.soft_cap(operation, buffers[operation.x])

    def _attention(
        self, operation: Attention, buffers: Mapping[str, FloatArray], batch: StepBatch
    ) -> FloatArray:
        q, k, v = buffers[operation.q], buffers[operation.k], buffers[operation.v]
        result = np.empty_like(q)
        for sequence, block_table in enumerate(batch.block_tables):
            rows = slice(batch.sequence_starts[sequence], batch.sequence_starts[sequence + 1])
            positions = batch.positions[rows]
            self._kv.write(operation.layer, block_table, positions, k[rows], v[rows])
            keys, values = self._kv.read(operation.layer, block_table, int(positions[-1]) + 1)
            heads = q[rows].reshape(len(positions), operation.num_heads, operation.head_width)
            attended = self._arithmetic.attention(operation, heads, keys, values, positions)
            result[rows] = attended.reshape(len(positions), -1)
        return result


def _dead_buffers(plan: ModelPlan) -> tuple[tuple[str, ...], ...]:
    """For each operation, the buffers that nothing reads after it."""
    last_reader = {
        name: i for i, operation in enumerate(plan.operations) for name in input_buffers(operation)
    }
    dead: list[list[str]] = [[] for _ in plan.operations]
    for name, index in last_reader.items():
        if name != plan.logits:
            dead[index].append(name)
    return tuple(tuple(names) for names in dead)
