"""NativeRuntime: the executable plan on the C++ kernels, one call a step, the interpreter lock released."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ferrum import _native
from ferrum.core.arrays import FloatArray
from ferrum.core.errors import InternalError, InvalidConfig, UnsupportedModel
from ferrum.core.kv_dtype import KvDtype
from ferrum.plan.executable_plan import ExecutablePlan
from ferrum.plan.lowering import lower
from ferrum.plan.model_plan import ModelPlan
from ferrum.runtimes.native_assembly import assemble
from ferrum.runtimes.native_memory import StepLimits
from ferrum.runtimes.protocol import LogitsDetail, LogprobOutput, StepAborted, StepBatch, StepOutput
from ferrum.weights.quantized_tensor import QuantizedTensor

BLOCK_TOKENS = 32

# Order of bytes in a KV block (native/kernels/attention.cpp); raised when it changes, so that saved blocks of
# another order are not taken for ours.
KV_LAYOUT_ID = "native-kv-1"

# Every kernel set and thread count gives the same bits (docs/numerics.md), so neither is part of the id.
NUMERICS_ID = "native-2 kv={kv_dtype} piece=128"

_NOTHING_LEFT = -2


class NativeRuntime:
    """A Runtime (see protocol.py) of ``num_blocks`` KV blocks and ``num_threads`` compute threads.

    ``kv_dtype`` says how K and V are kept: int8 takes half the memory and changes the bits of results.

    ``kernel_set`` is one of ``_native.kernel_sets()``; empty = the best of this processor. Weights are copied
    into the kernels' layout while it is built, so the checkpoint may be closed afterwards.
    Raises UnsupportedModel for a plan the kernels cannot run, InvalidConfig for a bad kernel set or limit.
    """

    def __init__(
        self,
        plan: ModelPlan,
        tensors: Mapping[str, QuantizedTensor],
        num_blocks: int,
        num_threads: int = 1,
        limits: StepLimits = StepLimits(),
        kernel_set: str = "",
        kv_dtype: KvDtype = KvDtype.F16,
    ) -> None:
        if num_threads < 1:
            raise InvalidConfig("num_threads", f"must be at least 1, not {num_threads}")
        if kernel_set and kernel_set not in _native.kernel_sets():
            known = ", ".join(_native.kernel_sets())
            raise InvalidConfig("kernel_set", f"{kernel_set!r} does not run here; there are: {known}")
        _refuse_odd_heads(plan)
        self._plan = plan
        self._num_blocks = num_blocks
        self._limits = limits
        self._kv_dtype = kv_dtype
        self._executable = lower(plan)
        # What a step gives that is asked for nothing.
        self._nothing = StepOutput(
            token_ids=np.zeros(0, np.int32),
            logit_digests=np.zeros(0, np.uint64),
            logits=np.zeros((0, plan.vocabulary_size), np.float32),
        )
        sizes = (limits.max_tokens, limits.max_outputs, num_blocks, plan.context_length)
        try:
            self._native: _native.Runtime | None = _native.Runtime(kernel_set, num_threads, *sizes)
        except RuntimeError as error:
            message = (
                f"the system did not start {num_threads} threads ({error}); lower it, or raise the limit"
            )
            raise InvalidConfig("num_threads", message) from error
        assemble(self._executable, tensors, self._native, kv_dtype)

    @property
    def numerics_id(self) -> str:
        return NUMERICS_ID.format(kv_dtype=self._kv_dtype)

    @property
    def keeps_same_tokens_law(self) -> bool:
        return True

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
    def limits(self) -> StepLimits:
        return self._limits

    @property
    def kernel_set(self) -> str:
        return self._running().kernel_set

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights in the kernels' layout."""
        return self._running().weight_bytes

    @property
    def kv_bytes(self) -> int:
        """Bytes of the KV arenas."""
        return self._running().kv_bytes

    @property
    def scratch_bytes(self) -> int:
        """Bytes of the arenas a step works in; see native_memory.py."""
        return self._running().scratch_bytes

    @property
    def block_bytes(self) -> int:
        return self._running().block_bytes

    @property
    def layout_id(self) -> str:
        return KV_LAYOUT_ID

    @property
    def executable_plan(self) -> ExecutablePlan:
        return self._executable

    def run(self, batch: StepBatch, detail: LogitsDetail = LogitsDetail.NONE) -> StepOutput:
        num_outputs = len(batch.output_rows)
        tokens = np.zeros(num_outputs if batch.sampling is not None else 0, np.int32)
        has_rules = batch.sampling is not None and batch.sampling.rules is not None
        mirostat_mu = np.zeros(num_outputs, np.float64) if has_rules else self._nothing.mirostat_mu
        digests = np.zeros(num_outputs, np.uint64) if detail is LogitsDetail.DIGEST else None
        logprobs = None if batch.logprobs is None else LogprobOutput.for_batch(batch.logprobs)
        finished = self._running().run(
            batch.token_ids,
            batch.positions,
            batch.sequence_starts,
            batch.block_tables,
            batch.output_rows,
            batch.sampling,
            tokens,
            mirostat_mu,
            digests,
            batch.logprobs,
            logprobs,
            batch.num_lent_processors,
        )
        if not finished:
            raise StepAborted
        # As numbers of Python's: a call of NumPy more would take longer than all of this.
        worst = min(tokens.tolist(), default=0)
        if worst < 0:
            raise _failure(worst)
        return StepOutput(
            token_ids=tokens,
            logit_digests=self._nothing.logit_digests if digests is None else digests,
            logits=self._logits(num_outputs) if detail is LogitsDetail.FULL else self._nothing.logits,
            logprobs=logprobs,
            mirostat_mu=mirostat_mu,
        )

    def copy_block(self, source: int, target: int) -> None:
        self._running().copy_block(source, target)

    def read_block(self, block: int) -> bytes:
        content = np.empty(self.block_bytes, np.uint8)
        self._running().read_block(block, content)
        return content.tobytes()

    def write_block(self, block: int, content: bytes) -> None:
        self._running().write_block(block, np.frombuffer(content, np.uint8))

    def start_timing(self) -> None:
        """From now on, measures the wall time of every operation, until ``stop_timing``."""
        self._running().start_timing()

    def stop_timing(self) -> list[float]:
        """Seconds since ``start_timing``: of filling the rope tables, then of each operation of
        ``executable_plan``, then of choosing tokens.
        """
        seconds = self._running().operation_seconds
        self._running().stop_timing()
        return seconds

    def thread_places(self) -> list[int]:
        """The processors where the compute threads last ran, the caller's first; negative where one sleeps or
        it is not known. Any thread may ask.
        """
        native = self._native  # which another thread may let go at any time
        return [] if native is None else native.thread_places()

    def abort(self) -> None:
        if self._native is not None:
            self._native.abort()

    def close(self) -> None:
        self._native = None

    def _logits(self, num_outputs: int) -> FloatArray:
        logits = np.zeros((num_outputs, self._plan.vocabulary_size), np.float32)
        if num_outputs:
            self._running().copy_logits(logits)
        return logits

    def _running(self) -> _native.Runtime:
        if self._native is None:
            raise RuntimeError("the runtime is closed")
        return self._native


def _failure(code: int) -> InternalError:
    """What the kernels say in place of a token (native/kernels/kernel_table.h)."""
    if code == _NOTHING_LEFT:
        return InternalError("no token is allowed: masks and bans leave none of the vocabulary")
    return InternalError("the model's logits are not finite numbers; its weights may be damaged")


def _refuse_odd_heads(plan: ModelPlan) -> None:
    for layer, kv in enumerate(plan.kv_layers):
        if kv.head_width % 16:
            raise UnsupportedModel(
                plan.architecture,
                f"attention heads of width {kv.head_width} (layer {layer}); "
                "the native kernels need a multiple of 16",
            )
