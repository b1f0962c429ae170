"""Perplexity of a model file on a text file: puts checkpoint, tokenizer and both runtimes together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from ferrum.bench.perplexity import WINDOW_TOKENS, blocks_needed, measure_perplexity, windows_of
from ferrum.bench.source_commit import source_commit
from ferrum.core.errors import InvalidConfig
from ferrum.core.kv_dtype import KvDtype
from ferrum.models.architectures import build_plan
from ferrum.runtimes.native import NativeRuntime
from ferrum.runtimes.numpy_interpreter import InterpreterMode, NumpyInterpreter
from ferrum.runtimes.paged_kv import BLOCK_TOKENS
from ferrum.tokenization.gguf_tokenizer import tokenizer_from_gguf
from ferrum.weights.checkpoint import open_checkpoint
from ferrum.weights.open_model import ResolvedModel


@dataclass(frozen=True, slots=True)
class PerplexityReport:
    """The scores (see PerplexityScores) and what they were measured on."""

    model: str
    text: str
    tokens_scored: int
    perplexity_native: float
    perplexity_float: float
    kl_mean: float
    kv_dtype: KvDtype
    plan_hash: str
    numerics_id: str
    commit: str | None

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def report_perplexity(
    model: ResolvedModel,
    text: Path,
    num_threads: int,
    cache: Path,
    on_window: Callable[[int, int], None],
    kv_dtype: KvDtype = KvDtype.F16,
) -> PerplexityReport:
    """``on_window`` is told (windows done, all windows). Raises ModelError or InvalidConfig."""
    words = read_text(text)
    with open_checkpoint(model.path) as checkpoint:
        plan = build_plan(checkpoint, WINDOW_TOKENS)
        tokenizer = tokenizer_from_gguf(checkpoint.metadata, cache)
        bos_id = tokenizer.bos_id if tokenizer.adds_bos else None
        windows = windows_of(tokenizer.encode_prompt(words), bos_id)
        num_blocks = blocks_needed(BLOCK_TOKENS)
        reference = NumpyInterpreter(plan, checkpoint.tensors, num_blocks, InterpreterMode.FLOAT)
        native = NativeRuntime(
            plan, checkpoint.tensors, num_blocks=num_blocks, num_threads=num_threads, kv_dtype=kv_dtype
        )
        try:
            scores = measure_perplexity(
                windows, native, reference, lambda done: on_window(done, len(windows))
            )
        finally:
            native.close()
    return PerplexityReport(
        model=model.name,
        text=text.name,
        tokens_scored=scores.tokens_scored,
        perplexity_native=scores.perplexity_native,
        perplexity_float=scores.perplexity_float,
        kl_mean=scores.kl_mean,
        kv_dtype=kv_dtype,
        plan_hash=plan.hash(),
        numerics_id=native.numerics_id,
        commit=source_commit(),
    )


def read_text(path: Path) -> str:
    """UTF-8 text. Raises InvalidConfig when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidConfig("--text", f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidConfig("--text", f"{path} is not UTF-8 text") from None
