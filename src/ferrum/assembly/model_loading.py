"""From a model argument to its parts, ready to run: files, tokenizer, template, plan, runtime."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ferrum import environment
from ferrum.assembly.draft_model import (
    DRAFT_OPTION,
    DraftModel,
    require_same_vocabulary,
    with_draft,
    without_speculation,
)
from ferrum.assembly.memory_available import read_available_memory
from ferrum.assembly.memory_budget import choose_budget
from ferrum.assembly.memory_fit import (
    MEBIBYTE,
    ExplicitSizes,
    MemoryFit,
    MemoryNeeds,
    Sizes,
    fit_memory,
)
from ferrum.assembly.thread_count import ThreadCount, choose_thread_count, read_cpu_limits
from ferrum.chat.prompt_encoder import encode_chat, template_for
from ferrum.chat.template import ChatTemplate
from ferrum.core.config import EngineConfig
from ferrum.core.errors import InvalidConfig, ModelError, ResourceExhausted
from ferrum.core.kv_dtype import KvDtype
from ferrum.core.request import ChatPrompt
from ferrum.execution.executor import ResolvedModelPlan
from ferrum.models.architectures import build_plan
from ferrum.plan.cost import plan_kv_bytes_per_token
from ferrum.plan.lowering import lower
from ferrum.plan.model_plan import ModelIdentity, ModelPlan
from ferrum.plan.plan_work import plan_work
from ferrum.runtimes.native import BLOCK_TOKENS, NativeRuntime
from ferrum.runtimes.native_memory import (
    StepLimits,
    packed_weight_bytes,
    repetition_bytes,
    sampling_bytes,
    scratch_bytes,
)
from ferrum.runtimes.protocol import Runtime
from ferrum.tokenization.gguf_tokenizer import tokenizer_from_gguf
from ferrum.tokenization.tokenizer import Tokenizer
from ferrum.weights.checkpoint import Checkpoint, open_checkpoint
from ferrum.weights.model_store import ModelStore
from ferrum.weights.open_model import open_model
from ferrum.weights.progress_reporter import ProgressReporter
from ferrum.weights.source_bundle import SourceBundle, bundle_of_checkpoint

# The interpreter with its libraries; and what a tokenizer keeps for each word. Both measured, rounded up.
PROCESS_BYTES = 128 * MEBIBYTE
TOKENIZER_BYTES_PER_WORD = 512


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a model is loaded.

    threads           compute threads; None = chosen from what the process may use
    chat_template     Jinja source that replaces the model's own template
    engine            sizes and limits; its max_model_len is the context length
    explicit          which of the sizes were asked for and may not shrink; None = those that are no defaults
    model_directory   where fetched models lie
    cache_directory   where what can be computed again is kept
    system_root       where the system's proc and sys are, which tell what this process may use
    """

    threads: int | None = None
    chat_template: str | None = None
    engine: EngineConfig = field(default_factory=EngineConfig)
    explicit: ExplicitSizes | None = None
    model_directory: Path = field(default_factory=environment.model_directory)
    cache_directory: Path = field(default_factory=environment.cache_directory)
    system_root: Path = Path("/")


@dataclass(frozen=True, slots=True)
class PlanModel:
    """A LoadedModel whose plan the native runtime runs; whoever takes ``runtime`` closes it.

    ``draft`` is a smaller model that drafts for it, with memory of the same fit; it is taken likewise.
    """

    name: str
    bundle: SourceBundle
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    plan: ModelPlan
    runtime: Runtime
    identity: ModelIdentity
    threads: ThreadCount
    memory: MemoryFit
    kv_dtype: KvDtype
    draft: DraftModel | None = None

    @property
    def arithmetic(self) -> str:
        return self.runtime.numerics_id

    @property
    def resolved_plan(self) -> ResolvedModelPlan:
        return _resolved_plan(self.identity, self.plan, self.kv_dtype)

    def encode_chat(self, prompt: ChatPrompt) -> list[int]:
        """Token ids of the rendered messages. Raises ChatTemplateError or InvalidRequest."""
        return encode_chat(self.chat_template, self.tokenizer, prompt)

    def close(self) -> None:
        """Frees the weights of a model that no executor was made of; idempotent."""
        self.runtime.close()
        if self.draft is not None:
            self.draft.runtime.close()


def load_model(argument: str, options: LoadOptions, reporter: ProgressReporter) -> PlanModel:
    """Everything ``argument`` needs to run. Raises ModelError, InvalidConfig or ResourceExhausted."""
    threads = choose_thread_count(read_cpu_limits(options.system_root), options.threads)
    resolved = open_model(argument, ModelStore(options.model_directory), reporter)
    with ExitStack() as files:
        checkpoint = files.enter_context(open_checkpoint(resolved.path))
        drafting = _open_draft(options, checkpoint, reporter, files)
        plan, memory = _fitted_plan(checkpoint, drafting, options, threads.count)
        with ThreadPoolExecutor(1, "ferrum-packing") as packing:
            # Packing holds no interpreter lock, and the tokenizer little else.
            packed = packing.submit(_native_runtime, plan, checkpoint, memory, threads, options.engine)
            tokenizer = tokenizer_from_gguf(checkpoint.metadata, options.cache_directory)
            template = chat_template_of(tokenizer, options.chat_template)
            digest = checkpoint.digest(options.cache_directory)
            bundle = bundle_of_checkpoint(checkpoint, options.cache_directory)
            runtime = packed.result()
        draft = None if drafting is None else _load_draft(drafting, memory, threads, options)
    identity = ModelIdentity(plan.hash(), digest, runtime.numerics_id)
    return PlanModel(
        name=resolved.name,
        bundle=bundle,
        tokenizer=tokenizer,
        chat_template=template,
        plan=plan,
        runtime=runtime,
        identity=identity,
        threads=threads,
        memory=memory,
        kv_dtype=options.engine.kv_dtype,
        draft=draft,
    )


def _open_draft(
    options: LoadOptions, target: Checkpoint, reporter: ProgressReporter, files: ExitStack
) -> Checkpoint | None:
    """The draft model's checkpoint, None without one. Raises InvalidConfig for one that cannot draft."""
    name = options.engine.speculation.draft_model
    if name is None:
        return None
    try:
        resolved = open_model(name, ModelStore(options.model_directory), reporter)
        draft = files.enter_context(open_checkpoint(resolved.path))
        require_same_vocabulary(target, draft, name)
        build_plan(draft, None)
    except ModelError as error:
        raise InvalidConfig(DRAFT_OPTION, f"the draft model {name!r} cannot be used: {error}") from error
    return draft


def _load_draft(
    checkpoint: Checkpoint, memory: MemoryFit, threads: ThreadCount, options: LoadOptions
) -> DraftModel:
    config = without_speculation(options.engine)
    plan = _draft_plan(checkpoint, memory.sizes.context_length)
    runtime = _native_runtime(plan, checkpoint, memory, threads, config)
    digest = checkpoint.digest(options.cache_directory)
    identity = ModelIdentity(plan.hash(), digest, runtime.numerics_id)
    resolved = _resolved_plan(identity, plan, config.kv_dtype)
    return DraftModel(plan, runtime, resolved, memory.sizes.batch_tokens)


def _draft_plan(checkpoint: Checkpoint, context_length: int) -> ModelPlan:
    """For the context of the model it drafts for, or as much of it as the draft can."""
    plan = build_plan(checkpoint, None)
    return plan if plan.context_length <= context_length else build_plan(checkpoint, context_length)


def _resolved_plan(identity: ModelIdentity, plan: ModelPlan, kv_dtype: KvDtype) -> ResolvedModelPlan:
    return ResolvedModelPlan(
        str(identity), plan_kv_bytes_per_token(plan, kv_dtype), plan_work(plan, kv_dtype)
    )


def _fitted_plan(
    checkpoint: Checkpoint, draft: Checkpoint | None, options: LoadOptions, num_threads: int
) -> tuple[ModelPlan, MemoryFit]:
    """The plan for the context that memory allows: the factors of rope may depend on it."""
    config = options.engine
    plan = build_plan(checkpoint, config.max_model_len)
    scheduler = config.scheduler
    wished = Sizes(plan.context_length, scheduler.max_running_requests, scheduler.max_num_batched_tokens)
    needs = memory_needs(plan, config, num_threads)
    if draft is not None:
        draft_plan = _draft_plan(draft, plan.context_length)
        draft_needs = memory_needs(draft_plan, without_speculation(config), num_threads)
        words = draft_plan.vocabulary_size * TOKENIZER_BYTES_PER_WORD
        needs = with_draft(needs, draft_needs, shared_bytes=PROCESS_BYTES + words)
    memory = fit_memory(
        needs,
        wished,
        options.explicit or ExplicitSizes.of(config),
        choose_budget(config, read_available_memory(options.system_root)),
    )
    if memory.sizes.context_length != plan.context_length:
        plan = build_plan(checkpoint, memory.sizes.context_length)
    return plan, memory


def memory_needs(plan: ModelPlan, config: EngineConfig, num_threads: int) -> MemoryNeeds:
    """What ``plan`` takes on the native runtime, at any sizes."""
    executable = lower(plan)
    words = plan.vocabulary_size * TOKENIZER_BYTES_PER_WORD
    return MemoryNeeds(
        weight_bytes=packed_weight_bytes(plan),
        overhead_bytes=PROCESS_BYTES + words + sampling_bytes(plan, num_threads),
        kv_bytes_per_token=plan_kv_bytes_per_token(plan, config.kv_dtype),
        block_tokens=BLOCK_TOKENS,
        scratch=lambda sizes: (
            scratch_bytes(executable, _step_limits(sizes, config), sizes.context_length, num_threads)
            + repetition_bytes(sizes.context_length, num_threads)
        ),
    )


def _native_runtime(
    plan: ModelPlan, checkpoint: Checkpoint, memory: MemoryFit, threads: ThreadCount, config: EngineConfig
) -> NativeRuntime:
    """The runtime with its weights. Raises ResourceExhausted when memory ends after all."""
    try:
        return NativeRuntime(
            plan,
            checkpoint.tensors,
            num_blocks=memory.num_blocks,
            num_threads=threads.count,
            limits=_step_limits(memory.sizes, config),
            kv_dtype=config.kv_dtype,
        )
    except MemoryError:
        available = read_available_memory()
        raise ResourceExhausted(
            "memory (bytes)",
            needed=memory.total_bytes,
            available=available.num_bytes if available is not None else 0,
            advice="lower --context-length or --memory, or use a smaller model",
        ) from None


def _step_limits(sizes: Sizes, config: EngineConfig) -> StepLimits:
    """Arenas for the largest step the scheduler writes: logits of every running request, after drafts, and of
    prompt tokens whose log-probabilities are wanted.
    """
    num_extra = config.speculation.draft_rows(sizes.sequences) + config.scheduler.max_scored_tokens
    return StepLimits(sizes.batch_tokens, sizes.sequences + num_extra)


def chat_template_of(tokenizer: Tokenizer, source: str | None) -> ChatTemplate | None:
    """The template given, else the model's own, else None."""
    if source is None and tokenizer.chat_template is None:
        return None
    return template_for(tokenizer, source)
