"""Perplexity counted by hand on runtimes whose logits are known."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from ferrum.bench.perplexity import FIRST_SCORED, WINDOW_TOKENS, log_softmax, measure_perplexity, windows_of
from ferrum.core.arrays import FloatArray, Int32Array
from ferrum.core.errors import InvalidConfig
from ferrum.runtimes.protocol import LogitsDetail, StepBatch, StepOutput

VOCABULARY = 1024
SCORED = WINDOW_TOKENS - FIRST_SCORED


class KnownLogits:
    """A runtime whose logits are a function of token and position; remembers which rows were asked for."""

    numerics_id = "known"
    keeps_same_tokens_law = True
    num_blocks = 16
    block_tokens = 32
    context_length = WINDOW_TOKENS
    vocabulary_size = VOCABULARY

    def __init__(self, logits_of: Callable[[int, int], FloatArray]) -> None:
        self._logits_of = logits_of
        self.scored_positions: list[int] = []

    def run(self, batch: StepBatch, detail: LogitsDetail = LogitsDetail.NONE) -> StepOutput:
        assert detail is LogitsDetail.FULL
        self.scored_positions += batch.positions[batch.output_rows].tolist()
        rows = [
            self._logits_of(int(batch.token_ids[row]), int(batch.positions[row])) for row in batch.output_rows
        ]
        logits = np.array(rows, np.float32).reshape(-1, VOCABULARY)
        return StepOutput(np.zeros(0, np.int32), np.zeros(0, np.uint64), logits)

    def abort(self) -> None: ...
    def close(self) -> None: ...


def favouring_the_next(weight: float) -> Callable[[int, int], FloatArray]:
    """Logits that give the token id one above the last one ``weight`` more than all others."""

    def logits_of(token_id: int, position: int) -> FloatArray:
        logits = np.zeros(VOCABULARY, np.float32)
        logits[token_id + 1] = weight
        return logits

    return logits_of


def uniform(token_id: int, position: int) -> FloatArray:
    return np.zeros(VOCABULARY, np.float32)


COUNTING = np.arange(WINDOW_TOKENS, dtype=np.int32)


def test_a_uniform_guess_has_the_vocabulary_as_perplexity() -> None:
    scores = measure_perplexity([COUNTING] * 2, KnownLogits(uniform), KnownLogits(uniform))
    assert scores.perplexity_float == pytest.approx(VOCABULARY)
    assert scores.perplexity_native == pytest.approx(VOCABULARY)
    assert scores.kl_mean == 0.0
    assert scores.tokens_scored == 2 * SCORED


def test_each_scored_token_is_scored_by_the_logits_before_it() -> None:
    native, reference = KnownLogits(uniform), KnownLogits(favouring_the_next(5.0))
    scores = measure_perplexity([COUNTING], native, reference)
    # Every scored token is the favoured one; shifted by one position none would be.
    partition = math.exp(5.0) + VOCABULARY - 1
    assert scores.perplexity_float == pytest.approx(partition / math.exp(5.0))
    assert scores.perplexity_native == pytest.approx(VOCABULARY)
    favoured = math.exp(5.0) / partition
    other = 1 / partition
    expected = favoured * math.log(favoured * VOCABULARY)
    expected += (VOCABULARY - 1) * other * math.log(other * VOCABULARY)
    assert scores.kl_mean == pytest.approx(expected)
    assert native.scored_positions == reference.scored_positions == list(range(256, 511))


def test_windows_are_whole_and_begin_with_the_beginning_token() -> None:
    ids = list(range(2, 2 + 3 * WINDOW_TOKENS - 1))
    windows = windows_of(ids, bos_id=1)
    assert [len(window) for window in windows] == [WINDOW_TOKENS] * 2
    assert [window[0] for window in windows] == [1, 1]
    assert windows[1][1:].tolist() == ids[WINDOW_TOKENS + 1 : 2 * WINDOW_TOKENS]
    assert windows_of(ids, bos_id=None)[1][0] == ids[WINDOW_TOKENS]


def test_a_text_without_a_whole_window_is_refused_with_the_numbers() -> None:
    with pytest.raises(InvalidConfig, match="has 511 tokens and at least 512"):
        windows_of([0] * 511, bos_id=None)


def test_every_window_is_reported_when_it_is_done() -> None:
    done: list[int] = []
    measure_perplexity([COUNTING] * 3, KnownLogits(uniform), KnownLogits(uniform), done.append)
    assert done == [1, 2, 3]


def test_log_softmax_keeps_what_float32_would_lose() -> None:
    logits: Int32Array | FloatArray = np.array([[1000.0, 970.0]], np.float32)
    assert log_softmax(logits)[0, 1] == pytest.approx(-30.0, abs=1e-9)
    assert np.exp(log_softmax(logits)).sum() == pytest.approx(1.0, abs=1e-15)
