"""Perplexity of a text under float32 arithmetic and under a runtime's own, and how far the two diverge.

The text is cut into windows of 512 tokens, each a fresh context whose second half is scored. Knows no files
and no models: a pair of runtimes and token ids.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ferrum.core.arrays import FloatArray, Int32Array
from ferrum.core.errors import InvalidConfig
from ferrum.runtimes.protocol import LogitsDetail, Runtime, StepBatch

WINDOW_TOKENS: Final = 512
# Logits of positions 256 to 510 score the tokens after them, as in llama.cpp's tool: its figures compare.
FIRST_SCORED: Final = 257

# Rows of one step: the logits of a large vocabulary (4 bytes each, 262,144 of them) stay within 64 MiB.
_STEP_TOKENS: Final = 64


@dataclass(frozen=True, slots=True)
class PerplexityScores:
    """exp of the mean negative log probability, twice, and the mean of KL(float || native); natural logs."""

    tokens_scored: int
    perplexity_native: float
    perplexity_float: float
    kl_mean: float


def blocks_needed(block_tokens: int) -> int:
    """KV blocks that a runtime must have to be scored."""
    return -(-WINDOW_TOKENS // block_tokens)


def windows_of(token_ids: Sequence[int], bos_id: int | None) -> list[Int32Array]:
    """Whole windows of ``token_ids``, the rest dropped; a ``bos_id`` replaces the first token of each.

    Raises InvalidConfig when the text has no whole window.
    """
    if len(token_ids) < WINDOW_TOKENS:
        raise InvalidConfig(
            "text", f"has {len(token_ids)} tokens and at least {WINDOW_TOKENS} are needed; give a longer one"
        )
    num_windows = len(token_ids) // WINDOW_TOKENS
    cut = np.array(token_ids[: num_windows * WINDOW_TOKENS], np.int32).reshape(num_windows, WINDOW_TOKENS)
    if bos_id is not None:
        cut[:, 0] = bos_id
    return list(cut)


def measure_perplexity(
    windows: Sequence[Int32Array],
    native: Runtime,
    reference: Runtime,
    on_window: Callable[[int], None] = lambda window: None,
) -> PerplexityScores:
    """Scores every window with both runtimes; ``on_window`` is told the number of windows done."""
    native_loss = float_loss = divergence = 0.0
    for number, window in enumerate(windows, start=1):
        pairs = zip(_window_logits(reference, window), _window_logits(native, window), strict=True)
        start = FIRST_SCORED
        for float_logits, native_logits in pairs:
            targets = window[start : start + len(float_logits)]
            start += len(targets)
            float_log, native_log = log_softmax(float_logits), log_softmax(native_logits)
            rows = np.arange(len(targets))
            float_loss -= float(float_log[rows, targets].sum())
            native_loss -= float(native_log[rows, targets].sum())
            divergence += float((np.exp(float_log) * (float_log - native_log)).sum())
        assert start == WINDOW_TOKENS
        on_window(number)
    num_scored = len(windows) * (WINDOW_TOKENS - FIRST_SCORED)
    return PerplexityScores(
        tokens_scored=num_scored,
        perplexity_native=math.exp(native_loss / num_scored),
        perplexity_float=math.exp(float_loss / num_scored),
        kl_mean=divergence / num_scored,
    )


def log_softmax(logits: FloatArray) -> NDArray[np.float64]:
    """In float64, over the last axis."""
    shifted: NDArray[np.float64] = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def _window_logits(runtime: Runtime, window: Int32Array) -> Iterator[FloatArray]:
    """The logits that score tokens FIRST_SCORED and later, in order, a step at a time."""
    table = np.arange(blocks_needed(runtime.block_tokens), dtype=np.int32)[None]
    for start in range(0, WINDOW_TOKENS, _STEP_TOKENS):
        positions = np.arange(start, start + _STEP_TOKENS, dtype=np.int32)
        scores_next = (positions >= FIRST_SCORED - 1) & (positions < WINDOW_TOKENS - 1)
        batch = StepBatch(
            token_ids=window[start : start + _STEP_TOKENS],
            positions=positions,
            sequence_starts=np.array([0, _STEP_TOKENS], np.int32),
            block_tables=table,
            output_rows=np.flatnonzero(scores_next).astype(np.int32),
            sampling=None,
        )
        output = runtime.run(batch, LogitsDetail.FULL)
        if scores_next.any():
            yield output.logits
