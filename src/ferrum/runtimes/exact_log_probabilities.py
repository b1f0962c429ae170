"""Log-probabilities of rows of logits, to the last bit of docs/numerics.md, in NumPy."""

from __future__ import annotations

from typing import Final

import numpy as np

from ferrum.core.arrays import FloatArray, Int32Array
from ferrum.core.errors import InternalError
from ferrum.core.float_math import exp32, lane_sum, natural_log64
from ferrum.core.logprobs import RowLogprobs
from ferrum.runtimes.protocol import LogprobBatch, LogprobOutput

# Weights that are summed in float32 before the sum goes on in float64.
_RUN: Final = 1024


def row_logprobs(logits: FloatArray, token_id: int, num_top: int) -> RowLogprobs:
    """What ``logits`` [vocabulary] say of one token and of the ``num_top`` most likely ones.

    Nothing that sampling does to logits has a part in it. Ties: lower id first. Raises InternalError for
    logits that are not all finite.
    """
    if not np.isfinite(logits).all():
        raise InternalError("the model's logits are not finite numbers; its weights may be damaged")
    largest = logits.max()
    normaliser = _log_of_weights(logits, largest)

    def logprob(chosen: int) -> float:
        return float(np.float32((float(logits[chosen]) - float(largest)) - normaliser))

    value = logits[token_id]
    rank = 1 + int((logits > value).sum()) + int((logits[:token_id] == value).sum())
    # A stable sort of the negated logits leaves equal ones in the order of their ids.
    top_ids = tuple(np.argsort(-logits, kind="stable")[:num_top].tolist())
    return RowLogprobs(logprob(token_id), rank, top_ids, tuple(map(logprob, top_ids)))


def batch_logprobs(logits: FloatArray, tokens: Int32Array, batch: LogprobBatch) -> LogprobOutput:
    """The same for those rows of ``logits`` [num_outputs, vocabulary] that want it."""
    found = LogprobOutput.for_batch(batch)
    for row, num_entries in enumerate(batch.num_entries.tolist()):
        if num_entries:
            each = row_logprobs(logits[row], int(tokens[row]), num_entries - 1)
            num_top = len(each.top_ids)
            found.values[row], found.ranks[row] = each.logprob, each.rank
            found.top_ids[row, :num_top] = each.top_ids
            found.top_values[row, :num_top] = each.top_logprobs
    return found


def _log_of_weights(logits: FloatArray, largest: np.float32) -> float:
    """log Σ exp(logit − largest)."""
    padding = np.full(-len(logits) % _RUN, -np.inf, np.float32)
    with np.errstate(over="ignore"):  # A distant logit is minus infinity, which weighs nothing.
        weights = exp32(np.concatenate([logits, padding]) - largest)
    total = 0.0
    for run in lane_sum(weights.reshape(-1, _RUN)).tolist():
        total += run
    return float(natural_log64(total))
