"""Whatever callers, clock and executor do, in whatever order: every request ends once, with the tokens it
gets alone or the beginning of them, and nothing is held afterwards.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from engine_machine import EngineMachine
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from ferrum.core.request import InferenceRequest, TokenPrompt
from ferrum.core.step import SamplingInstruction, SequencePart, StepPlan
from ferrum.execution.executor import Executor, ExecutorCapacity, ResolvedModelPlan
from ferrum.execution.plan_executor import PlanExecutor
from ferrum.models.architectures import build_plan
from ferrum.runtimes.native import NativeRuntime
from ferrum.testing.scripted_executor import ScriptedExecutor
from ferrum.weights.checkpoint import open_checkpoint
from tiny_models import write_tiny_llama


class ScriptedMachine(EngineMachine):
    def make_executor(self, num_blocks: int) -> Executor:
        return ScriptedExecutor(capacity=ExecutorCapacity(num_blocks, 4, 256, 258))

    def solo_tokens(self, request: InferenceRequest) -> tuple[int, ...]:
        executor = ScriptedExecutor(capacity=ExecutorCapacity(64, 4, 256, 258))
        return run_alone(executor, request, self.max_model_len, tuple(range(64)))


class NativeMachine(EngineMachine):
    """A block holds 32 tokens here, so requests are longer and the pool has fewer."""

    max_model_len = 100
    pool_blocks = st.integers(4, 6)

    def make_executor(self, num_blocks: int) -> Executor:
        return native_executor(num_blocks)

    def solo_tokens(self, request: InferenceRequest) -> tuple[int, ...]:
        assert isinstance(request.prompt, TokenPrompt)
        return solo_native_tokens(request, self.max_model_len)


def native_executor(num_blocks: int) -> PlanExecutor:
    with (
        tempfile.TemporaryDirectory() as folder,
        open_checkpoint(write_tiny_llama(Path(folder) / "tiny.gguf")) as checkpoint,
    ):
        runtime = NativeRuntime(build_plan(checkpoint, None), checkpoint.tensors, num_blocks=num_blocks)
    return PlanExecutor(runtime, ResolvedModelPlan("tiny", 64))


def solo_native_tokens(request: InferenceRequest, max_model_len: int) -> tuple[int, ...]:
    executor = native_executor(4)
    try:
        return run_alone(executor, request, max_model_len, tuple(range(4)))
    finally:
        executor.close()


def run_alone(
    executor: Executor, request: InferenceRequest, max_model_len: int, blocks: tuple[int, ...]
) -> tuple[int, ...]:
    """The prompt in one step, then token by token, without engine or scheduler."""
    assert isinstance(request.prompt, TokenPrompt)
    sampling, tokens = request.sampling, list(request.prompt.token_ids)
    num_prompt = num_computed = len(tokens)
    num_computed = 0
    most = sampling.max_tokens or max_model_len - num_prompt
    while len(tokens) < num_prompt + most:
        instruction = SamplingInstruction(
            sampling.temperature,
            sampling.top_k,
            sampling.top_p,
            sampling.min_p,
            sampling.seed or 0,
            len(tokens),
        )
        part = SequencePart("solo", tuple(tokens[num_computed:]), num_computed, blocks, (instruction,))
        num_computed = len(tokens)
        tokens.append(executor.execute(StepPlan((part,))).tokens[0].token_id)
    return tuple(tokens[num_prompt:])


ScriptedMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
NativeMachine.TestCase.settings = settings(
    max_examples=12, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestOnTheScriptedExecutor = ScriptedMachine.TestCase
TestOnTheNativeRuntime = NativeMachine.TestCase
