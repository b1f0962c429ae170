"""The choice of a token, spelled out in NumPy. The native sampler does the same arithmetic to the last bit.

Weights are float32 with the project's one exp, sums are float64 in a fixed order, and the draw comes from a
counter-based generator: the token depends on logits and instruction alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ferrum.core.arrays import FloatArray
from ferrum.core.errors import InternalError
from ferrum.core.float_math import exp32
from ferrum.core.philox import uniform
from ferrum.core.step import SamplingInstruction
from ferrum.core.token_rules import TokenMask

NOTHING_ALLOWED = "no token is allowed: masks and bans leave none of the vocabulary"


def choose(logits: FloatArray, sampling: SamplingInstruction) -> int:
    """The chosen id; ``logits`` is [vocabulary], finite float32. Tokens that the mask does not allow have no
    part in anything. Raises InternalError when it allows none.

    Temperature, top_p and min_p are read as float32. Greedy (ties: lowest id) when the temperature is 0 or no
    normal float32, so that its inverse is finite. Otherwise a token weighs exp((logit − highest) /
    temperature), so that the heaviest weighs exactly 1, and the tokens are cut in this order: min_p drops
    weights below it; top_k keeps the k heaviest; top_p keeps the shortest run of heaviest tokens whose sum
    reaches that share of what is left (summed by id, or heaviest first after top_k). Ties: lower id first.
    """
    if sampling.mask is not None:
        allowed = allowed_tokens(sampling.mask, len(logits))
        if not allowed.any():
            raise InternalError(NOTHING_ALLOWED)
        logits = np.where(allowed, logits, np.float32(-np.inf))
    temperature, top_p = np.float32(sampling.temperature), float(np.float32(sampling.top_p))
    if temperature < np.finfo(np.float32).tiny:
        return int(np.argmax(logits))
    with np.errstate(over="ignore"):  # A distant logit at a tiny temperature is minus infinity: weight 0.
        weights = exp32((logits - logits.max()) * (np.float32(1.0) / temperature))
    candidates = np.flatnonzero((weights >= np.float32(sampling.min_p)) & (weights > 0))
    if sampling.top_k > 0 or top_p < 1.0:
        candidates = _truncate(candidates, weights, sampling.top_k, top_p)
    return _draw(candidates, weights, uniform(sampling.seed, sampling.position))


def allowed_tokens(mask: TokenMask, vocabulary: int) -> NDArray[np.bool_]:
    """The mask's bits, [vocabulary]."""
    bits = np.unpackbits(mask.astype("<u4").view(np.uint8), bitorder="little", count=vocabulary)
    return bits.astype(np.bool_)


def _truncate(
    candidates: NDArray[np.intp], weights: FloatArray, top_k: int, top_p: float
) -> NDArray[np.intp]:
    """The candidates that top_k and top_p leave, heaviest first."""
    # A stable sort of the negated weights leaves equal weights in the order of their ids.
    ordered = candidates[np.argsort(-weights[candidates], kind="stable")]
    total = _running_sums(candidates, weights)[-1]
    if top_k > 0:
        ordered = ordered[:top_k]
        total = _running_sums(ordered, weights)[-1]
    if top_p < 1.0:
        sums = _running_sums(ordered, weights)
        ordered = ordered[: int(np.searchsorted(sums, top_p * total, side="left")) + 1]
    return ordered


def _draw(candidates: NDArray[np.intp], weights: FloatArray, share: float) -> int:
    """The first candidate whose running sum exceeds ``share`` of the total."""
    sums = _running_sums(candidates, weights)
    index = int(np.searchsorted(sums, share * sums[-1], side="right"))
    return int(candidates[min(index, len(candidates) - 1)])


def _running_sums(candidates: NDArray[np.intp], weights: FloatArray) -> NDArray[np.float64]:
    """Sums from left to right (cumsum adds in order; sum would add in pairs)."""
    return np.cumsum(weights[candidates], dtype=np.float64)
