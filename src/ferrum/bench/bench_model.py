"""A loaded model whose runtime can be driven directly, and through an engine that is watched."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from ferrum import environment
from ferrum.assembly.engine_builder import EngineBuilder
from ferrum.assembly.memory_fit import ExplicitSizes
from ferrum.assembly.model_loading import LoadOptions, PlanModel, load_model
from ferrum.assembly.model_sources import DefinedModel, ModelSources
from ferrum.bench.engine_probe import EngineProbe
from ferrum.bench.timed_runtime import TimedRuntime
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.errors import InvalidConfig, ResourceExhausted
from ferrum.core.kv_dtype import KvDtype
from ferrum.core.sampling_params import SamplingParams
from ferrum.llm import LLM
from ferrum.models.architectures import build_plan
from ferrum.runtimes.native import NativeRuntime
from ferrum.weights.checkpoint import open_checkpoint
from ferrum.weights.model_store import ModelStore
from ferrum.weights.open_model import open_model
from ferrum.weights.progress_reporter import ProgressReporter


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Which model is measured, and how it runs. ``threads`` None = as many as the process may use."""

    argument: str
    threads: int | None = None
    kv_dtype: KvDtype = KvDtype.F16


@dataclass(frozen=True, slots=True)
class BenchNeeds:
    """What a measurement needs to have room for: tokens of its longest sequence, and how many at once."""

    sequence_tokens: int
    num_sequences: int


# A measurement of smaller sizes than asked for would be of something else.
EXACTLY = ExplicitSizes(context_length=True, sequences=True, batch_tokens=True)


class BenchModel:
    """Use it in a with-statement. Drive ``runtime`` directly only while the engine is idle: the two share it.

    Raises ModelError, InvalidConfig or ResourceExhausted, like every door.
    """

    def __init__(self, choice: ModelChoice, needs: BenchNeeds, reporter: ProgressReporter) -> None:
        self.kv_dtype = choice.kv_dtype
        self.context_length = min(model_context(choice.argument, reporter), needs.sequence_tokens)
        scheduler = SchedulerConfig(
            max_running_requests=needs.num_sequences,
            max_num_batched_tokens=max(SchedulerConfig().max_num_batched_tokens, needs.num_sequences),
        )
        config = EngineConfig(
            max_model_len=self.context_length,
            scheduler=scheduler,
            kv_dtype=choice.kv_dtype,
            # Steps that are driven directly write over whatever blocks hold.
            prefix_cache=False,
        )
        options = LoadOptions(threads=choice.threads, engine=config, explicit=EXACTLY)
        self.model: PlanModel = load_model(choice.argument, options, reporter)
        assert isinstance(self.model.runtime, NativeRuntime)
        self.runtime: NativeRuntime = self.model.runtime
        self.probe = EngineProbe()
        self.timed = TimedRuntime(self.runtime)
        watched = replace(self.model, runtime=self.timed)
        defined = DefinedModel(ModelSources(choice.argument, options, reporter), watched)
        builder = EngineBuilder(config).with_defined_model(defined).with_observer(self.probe)
        self._llm = LLM.over(builder.build())
        self._random = random.Random(0)

    @property
    def max_step_tokens(self) -> int:
        return self.runtime.limits.max_tokens

    def require_room(self, num_sequences: int, sequence_tokens: int) -> None:
        """Raises InvalidConfig when a sequence is longer than the context, and ResourceExhausted when so many
        do not fit the KV cache at once.
        """
        if sequence_tokens > self.context_length:
            raise InvalidConfig(
                "context",
                f"the model's context holds {self.context_length} tokens, and a sequence would have "
                f"{sequence_tokens}; measure shorter ones",
            )
        needed = num_sequences * -(-sequence_tokens // self.runtime.block_tokens)
        if needed > self.runtime.num_blocks:
            raise ResourceExhausted(
                "KV blocks", needed, self.runtime.num_blocks, "measure fewer or shorter sequences"
            )

    def random_prompt(self, num_tokens: int) -> tuple[int, ...]:
        """Token ids that no earlier prompt began with."""
        vocabulary = self.runtime.vocabulary_size
        return tuple(self._random.randrange(vocabulary) for _ in range(num_tokens))

    def generate(self, prompts: Sequence[tuple[int, ...]], num_output_tokens: int) -> None:
        """Answers all prompts together, each with exactly so many tokens.

        ``probe`` and ``timed`` hold what happened, and nothing else.
        """
        sampling = SamplingParams(max_tokens=num_output_tokens, temperature=0.0, ignore_eos=True)
        self.probe.reset()
        self.timed.reset()
        self._llm.generate(list(prompts), sampling)

    def close(self) -> None:
        self._llm.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def model_context(argument: str, reporter: ProgressReporter) -> int:
    """The context length the model was made for."""
    resolved = open_model(argument, ModelStore(environment.model_directory()), reporter)
    with open_checkpoint(resolved.path) as checkpoint:
        return build_plan(checkpoint).context_length
