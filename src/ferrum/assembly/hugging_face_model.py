"""From a Hugging Face folder to a model that transformers computes: files, tokenizer, template, sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ferrum.assembly.memory_available import read_available_memory
from ferrum.assembly.memory_budget import MemoryBudget, choose_budget
from ferrum.assembly.memory_fit import (
    MEBIBYTE,
    ExplicitSizes,
    MemoryFit,
    MemoryNeeds,
    Sizes,
    fit_memory,
)
from ferrum.assembly.model_loading import TOKENIZER_BYTES_PER_WORD, LoadOptions, chat_template_of
from ferrum.assembly.thread_count import ThreadCount, choose_thread_count, read_cpu_limits
from ferrum.chat.prompt_encoder import encode_chat
from ferrum.chat.template import ChatTemplate
from ferrum.core.config import EngineConfig
from ferrum.core.errors import InvalidConfig, ModelNotFound, ResourceExhausted
from ferrum.core.kv_dtype import KvDtype
from ferrum.core.request import ChatPrompt
from ferrum.execution.executor import ExecutorCapacity
from ferrum.runtimes.causal_model import CausalModel
from ferrum.runtimes.transformers_model import TransformersModel
from ferrum.tokenization.tokenizer import Tokenizer
from ferrum.tokenization.tokenizer_json import tokenizer_from_json
from ferrum.weights.progress_reporter import ProgressReporter
from ferrum.weights.source_bundle import SourceBundle, bundle_of_folder

# The interpreter with torch and transformers. Measured, rounded up.
PROCESS_BYTES = 512 * MEBIBYTE

# Tokens that are counted together; the model's own cache knows no blocks.
BLOCK_TOKENS = 32

# For an architecture without a limit of its own, such as a recurrent one.
USUAL_CONTEXT = 4096

_MEASURED_TOKENS = 16

CausalModelMaker = Callable[[Path, int], CausalModel]


@dataclass(frozen=True, slots=True)
class CacheSize:
    """Bytes of one sequence's cache: those that grow with it, and those that do not."""

    token_bytes: int
    state_bytes: int


@dataclass(frozen=True, slots=True)
class HuggingFaceModel:
    """A LoadedModel that the ``transformers`` executor runs, as its own library computes it."""

    name: str
    bundle: SourceBundle
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    causal_model: CausalModel
    cache_size: CacheSize
    threads: ThreadCount
    memory: MemoryFit

    @property
    def arithmetic(self) -> str:
        return self.causal_model.arithmetic

    @property
    def capacity(self) -> ExecutorCapacity:
        return ExecutorCapacity(
            num_blocks=self.memory.num_blocks,
            block_tokens=self.memory.block_tokens,
            context_length=self.memory.sizes.context_length,
            vocabulary_size=self.causal_model.vocabulary_size,
            kv_bytes_per_token=self.cache_size.token_bytes,
            recurrent_state_bytes=self.cache_size.state_bytes,
        )

    def encode_chat(self, prompt: ChatPrompt) -> list[int]:
        """Token ids of the rendered messages. Raises ChatTemplateError or InvalidRequest."""
        return encode_chat(self.chat_template, self.tokenizer, prompt)

    def close(self) -> None:
        """Frees the weights of a model that no executor was made of; idempotent."""
        self.causal_model.close()


def load_hugging_face_model(
    argument: str,
    options: LoadOptions,
    reporter: ProgressReporter,
    make_model: CausalModelMaker = TransformersModel,
) -> HuggingFaceModel:
    """Everything the folder ``argument`` needs to run. Nothing is fetched.

    Raises ModelError, InvalidConfig or ResourceExhausted.
    """
    folder, config = _folder(argument), options.engine
    if config.kv_dtype is not KvDtype.F16:
        raise InvalidConfig("kv_dtype", "the executor 'transformers' keeps its own cache; leave it out")
    bundle = bundle_of_folder(folder, options.cache_directory)
    tokenizer = tokenizer_from_json(folder)
    template = chat_template_of(tokenizer, options.chat_template)
    threads = choose_thread_count(read_cpu_limits(options.system_root), options.threads)
    budget = choose_budget(config, read_available_memory(options.system_root))
    fixed = bundle.weight_bytes + PROCESS_BYTES + tokenizer.vocab_size * TOKENIZER_BYTES_PER_WORD
    _require_room_for_weights(bundle.weight_bytes, fixed, budget)
    model = _make(make_model, folder, threads.count, fixed, budget)
    try:
        cache_size = measure_cache(model)
        needs = _memory_needs(model, cache_size, bundle.weight_bytes, fixed, config)
        explicit = options.explicit or ExplicitSizes.of(config)
        memory = fit_memory(needs, _wished_sizes(model, config), explicit, budget)
    except BaseException:
        model.close()
        raise
    name = folder.name or str(folder.absolute())
    return HuggingFaceModel(name, bundle, tokenizer, template, model, cache_size, threads, memory)


def measure_cache(model: CausalModel) -> CacheSize:
    """What the model's cache takes, found out with two short sequences: no table of architectures tells."""
    short, long = (_cache_bytes(model, count) for count in (_MEASURED_TOKENS, 2 * _MEASURED_TOKENS))
    token_bytes = -(-max(0, long - short) // _MEASURED_TOKENS)
    return CacheSize(token_bytes, max(0, short - token_bytes * _MEASURED_TOKENS))


def _cache_bytes(model: CausalModel, num_tokens: int) -> int:
    cache = model.new_cache()
    model.forward([number % model.vocabulary_size for number in range(num_tokens)], cache)
    return model.cache_bytes(cache)


def _folder(argument: str) -> Path:
    folder = Path(argument).expanduser()
    if not folder.is_dir():
        raise ModelNotFound(
            argument,
            "the executor 'transformers' takes a folder with config.json, tokenizer.json and *.safetensors",
        )
    return folder


def _require_room_for_weights(weight_bytes: int, fixed_bytes: int, budget: MemoryBudget | None) -> None:
    """Before the weights are read: the sizes beside them can only be known afterwards."""
    if budget is not None and fixed_bytes > budget.num_bytes:
        raise _no_room(weight_bytes, fixed_bytes, budget)


def _no_room(weight_bytes: int, needed: int, budget: MemoryBudget) -> ResourceExhausted:
    return ResourceExhausted(
        "memory (bytes)",
        needed=needed,
        available=budget.num_bytes,
        advice=f"weights take {-(-weight_bytes // MEBIBYTE)} MiB; the limit is {budget.source}; "
        f"{budget.how_to_raise}, or use a smaller model",
    )


def _make(
    make_model: CausalModelMaker, folder: Path, threads: int, fixed_bytes: int, budget: MemoryBudget | None
) -> CausalModel:
    try:
        return make_model(folder, threads)
    except MemoryError:
        available = budget.num_bytes if budget is not None else 0
        raise ResourceExhausted(
            "memory (bytes)", fixed_bytes, available, "lower --memory, or use a smaller model"
        ) from None


def _wished_sizes(model: CausalModel, config: EngineConfig) -> Sizes:
    longest, wished = model.context_length, config.max_model_len
    if wished is not None and longest is not None and wished > longest:
        raise InvalidConfig(
            "context_length", f"must be between 1 and the model's own {longest}, not {wished}"
        )
    return Sizes(
        context_length=wished or longest or USUAL_CONTEXT,
        sequences=config.scheduler.max_running_requests,
        batch_tokens=config.scheduler.max_num_batched_tokens,
    )


def _memory_needs(
    model: CausalModel, cache_size: CacheSize, weight_bytes: int, fixed_bytes: int, config: EngineConfig
) -> MemoryNeeds:
    chunk_tokens = config.scheduler.prefill_step_chunk

    def scratch(sizes: Sizes) -> int:
        """One pass at a time; each sequence has a state and the logits of its last token."""
        sequence_bytes = cache_size.state_bytes + 4 * model.vocabulary_size
        # A growing cache is copied, layer by layer: a whole second one is more than enough.
        copy_bytes = sizes.context_length * cache_size.token_bytes
        one_pass = model.pass_bytes(min(chunk_tokens, sizes.batch_tokens))
        return sizes.sequences * sequence_bytes + copy_bytes + one_pass

    return MemoryNeeds(
        weight_bytes=weight_bytes,
        overhead_bytes=fixed_bytes - weight_bytes,
        kv_bytes_per_token=cache_size.token_bytes,
        block_tokens=BLOCK_TOKENS,
        scratch=scratch,
    )
