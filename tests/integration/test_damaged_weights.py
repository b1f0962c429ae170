"""A request whose logits are not numbers fails alone: its neighbours in the step do not notice."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ferrum.core.errors import InternalError
from ferrum.core.events import Observers
from ferrum.core.step import SamplingInstruction, SequencePart, StepPlan
from ferrum.engine.step_runner import StepRunner
from ferrum.execution.executor import ResolvedModelPlan
from ferrum.execution.plan_executor import PlanExecutor
from ferrum.models.architectures import build_plan
from ferrum.runtimes.native import NativeRuntime
from ferrum.runtimes.protocol import LogitsDetail
from ferrum.weights.checkpoint import open_checkpoint
from ferrum.weights.tensor_types import TensorType
from tiny_models import VOCABULARY, float_tensor, write_tiny_llama

DAMAGED = 50


def part(request_id: str, token: int, block: int) -> SequencePart:
    greedy = SamplingInstruction(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0, position=1)
    return SequencePart(request_id, (token,), 0, (block,), (greedy,))


def test_a_request_with_damaged_logits_fails_alone(tmp_path: Path) -> None:
    table = np.random.default_rng(0).normal(0, 0.1, (VOCABULARY, 64)).astype(np.float32)
    table[DAMAGED] = np.nan
    # The head is a matrix of its own: only the damaged token's own request meets the damage.
    path = write_tiny_llama(
        tmp_path / "m.gguf",
        has_output=True,
        more_tensors={"token_embd.weight": float_tensor(TensorType.F32, table)},
    )
    checkpoint = open_checkpoint(path)
    plan = build_plan(checkpoint, 128)
    runtime = NativeRuntime(plan, checkpoint.tensors, num_blocks=4, num_threads=2)
    runner = StepRunner(
        PlanExecutor(runtime, ResolvedModelPlan("tiny", 1), LogitsDetail.DIGEST), Observers(())
    )
    healthy = part("healthy", 7, 0)
    alone = runner.run(StepPlan((healthy,)))
    together = runner.run(StepPlan((part("damaged", DAMAGED, 1), healthy)))
    assert together.tokens == alone.tokens
    assert set(together.failures) == {"damaged"}
    assert isinstance(together.failures["damaged"], InternalError)
    assert "not finite" in str(together.failures["damaged"])
