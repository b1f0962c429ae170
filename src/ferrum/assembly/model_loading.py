"""From a model argument to its parts, ready to run: files, tokenizer, template, plan, runtime."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ferrum import environment
from ferrum.assembly.kv_sizing import KvSize, fit_kv
from ferrum.assembly.memory_available import read_available_memory
from ferrum.assembly.thread_count import ThreadCount, choose_thread_count, read_cpu_limits
from ferrum.chat.prompt_encoder import encode_chat, template_for
from ferrum.chat.template import ChatTemplate
from ferrum.core.config import EngineConfig
from ferrum.core.errors import ResourceExhausted
from ferrum.core.request import ChatPrompt
from ferrum.execution.executor import ResolvedModelPlan
from ferrum.models.architectures import build_plan
from ferrum.plan.model_plan import ModelIdentity, ModelPlan
from ferrum.runtimes.native import BLOCK_TOKENS, NativeRuntime, StepLimits
from ferrum.runtimes.protocol import Runtime
from ferrum.tokenization.gguf_tokenizer import tokenizer_from_gguf
from ferrum.tokenization.tokenizer import Tokenizer
from ferrum.weights.checkpoint import Checkpoint, open_checkpoint
from ferrum.weights.model_store import ModelStore
from ferrum.weights.open_model import open_model
from ferrum.weights.progress_reporter import ProgressReporter


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a model is loaded.

    threads           compute threads; None = chosen from what the process may use
    chat_template     Jinja source that replaces the model's own template
    engine            sizes and limits; its max_model_len is the context length
    model_directory   where fetched models lie
    cache_directory   where what can be computed again is kept
    """

    threads: int | None = None
    chat_template: str | None = None
    engine: EngineConfig = field(default_factory=EngineConfig)
    model_directory: Path = field(default_factory=environment.model_directory)
    cache_directory: Path = field(default_factory=environment.cache_directory)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that is ready to run; whoever takes ``runtime`` closes it."""

    name: str
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    plan: ModelPlan
    runtime: Runtime
    identity: ModelIdentity
    threads: ThreadCount
    kv: KvSize

    @property
    def resolved_plan(self) -> ResolvedModelPlan:
        return ResolvedModelPlan(str(self.identity), self.kv.bytes_per_token)

    def encode_chat(self, prompt: ChatPrompt) -> list[int]:
        """Token ids of the rendered messages. Raises ChatTemplateError or InvalidRequest."""
        return encode_chat(self.chat_template, self.tokenizer, prompt)


def load_model(argument: str, options: LoadOptions, reporter: ProgressReporter) -> LoadedModel:
    """Everything ``argument`` needs to run. Raises ModelError, InvalidConfig or ResourceExhausted."""
    threads = choose_thread_count(read_cpu_limits(), options.threads)
    resolved = open_model(argument, ModelStore(options.model_directory), reporter)
    with open_checkpoint(resolved.path) as checkpoint:
        plan, kv = _fitted_plan(checkpoint, options.engine)
        tokenizer = tokenizer_from_gguf(checkpoint.metadata, options.cache_directory)
        template = _chat_template(tokenizer, options.chat_template)
        digest = checkpoint.digest(options.cache_directory)
        runtime = _native_runtime(plan, checkpoint, kv, threads, options.engine)
    identity = ModelIdentity(plan.hash(), digest, runtime.numerics_id)
    return LoadedModel(resolved.name, tokenizer, template, plan, runtime, identity, threads, kv)


def _fitted_plan(checkpoint: Checkpoint, config: EngineConfig) -> tuple[ModelPlan, KvSize]:
    """The plan for the context that memory allows: the factors of rope may depend on it."""
    plan = build_plan(checkpoint, config.max_model_len)
    kv = fit_kv(plan, config, checkpoint.num_bytes, read_available_memory(), BLOCK_TOKENS)
    if kv.context_length != plan.context_length:
        plan = build_plan(checkpoint, kv.context_length)
    return plan, kv


def _native_runtime(
    plan: ModelPlan, checkpoint: Checkpoint, kv: KvSize, threads: ThreadCount, config: EngineConfig
) -> NativeRuntime:
    """The runtime with its weights. Raises ResourceExhausted when memory ends after all."""
    try:
        return NativeRuntime(
            plan,
            checkpoint.tensors,
            num_blocks=kv.num_blocks,
            num_threads=threads.count,
            limits=_step_limits(config),
            kv_dtype=config.kv_dtype,
        )
    except MemoryError:
        raise ResourceExhausted(
            "memory (bytes)",
            needed=checkpoint.num_bytes + kv.num_bytes,
            available=read_available_memory() or 0,
            advice="lower --context-length, or use a smaller model",
        ) from None


def _step_limits(config: EngineConfig) -> StepLimits:
    """Arenas for the largest step the scheduler writes; every running request may want its logits."""
    scheduler = config.scheduler
    return StepLimits(scheduler.max_num_batched_tokens, scheduler.max_running_requests)


def _chat_template(tokenizer: Tokenizer, source: str | None) -> ChatTemplate | None:
    if source is None and tokenizer.chat_template is None:
        return None
    return template_for(tokenizer, source)
