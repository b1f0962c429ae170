"""What the native runtime is said to take, against what it took."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrum.core.kv_dtype import KvDtype
from ferrum.models.architectures import build_plan
from ferrum.plan.cost import plan_kv_bytes_per_token
from ferrum.plan.lowering import lower
from ferrum.runtimes.native import BLOCK_TOKENS, NativeRuntime
from ferrum.runtimes.native_memory import StepLimits, packed_weight_bytes, scratch_bytes
from ferrum.weights.checkpoint import Checkpoint, open_checkpoint
from ferrum.weights.tensor_types import TensorType
from tiny_models import gemma3_metadata, llama_metadata, write_tiny_gemma3, write_tiny_llama


@pytest.fixture(params=["llama", "gemma3"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Checkpoint:
    path = tmp_path / "m.gguf"
    if request.param == "llama":
        metadata = llama_metadata(embedding_length=112, attention__key_length=48)
        return open_checkpoint(write_tiny_llama(path, metadata=metadata, has_output=True))
    return open_checkpoint(write_tiny_gemma3(path, TensorType.Q8_0, metadata=gemma3_metadata()))


@pytest.mark.parametrize("kv_dtype", KvDtype)
@pytest.mark.parametrize(
    ("limits", "context", "num_threads"),
    [(StepLimits(512, 16), 2048, 1), (StepLimits(70, 3), 300, 3), (StepLimits(1, 1), 1, 2)],
)
def test_a_runtime_takes_what_was_foreseen(
    checkpoint: Checkpoint, limits: StepLimits, context: int, num_threads: int, kv_dtype: KvDtype
) -> None:
    plan = build_plan(checkpoint, context)
    runtime = NativeRuntime(plan, checkpoint.tensors, 7, num_threads, limits, kv_dtype=kv_dtype)
    assert runtime.weight_bytes == packed_weight_bytes(plan)
    assert runtime.kv_bytes == 7 * BLOCK_TOKENS * plan_kv_bytes_per_token(plan, kv_dtype)
    assert runtime.scratch_bytes == scratch_bytes(lower(plan), limits, context, num_threads)
