"""The choice of a token, spelled out in NumPy. The native sampler does the same arithmetic to the last bit.

Weights are float32 with the project's one exp, sums are float64 and exact, and the draw comes from a
counter-based generator: the token depends on logits and instruction alone. docs/sampling.md has the order of
all processors and what each computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ferrum.core.arrays import FloatArray
from ferrum.core.errors import InternalError
from ferrum.core.float_math import exp32, natural_log64
from ferrum.core.philox import uniform
from ferrum.core.step import SamplingInstruction
from ferrum.core.token_rules import RuleSettings, TokenMask, TokenRules
from ferrum.sampling.logit_rules import adjust_logits, cut_below_sigma
from ferrum.sampling.token_weights import PRODUCT_STEPS, dynamic_temperature, weigh

NOTHING_ALLOWED: Final = "no token is allowed: masks and bans leave none of the vocabulary"

_NO_RULES: Final = TokenRules(RuleSettings())
_TOP_CHOICES_PURPOSE: Final = 1  # of the draw that decides on XTC
_NATS_PER_BIT: Final = 0.69314718055994531

Candidates = NDArray[np.intp]
"""Token ids that may be chosen; where one of top_k, typical_p, top_p, XTC and mirostat is asked for, heaviest
first and of equally heavy ones the lower id first; else by id.
"""


@dataclass(frozen=True, slots=True)
class Choice:
    """``mirostat_mu``: the most surprise that the next token may have, where mirostat is asked for."""

    token_id: int
    mirostat_mu: float


def choose(logits: FloatArray, sampling: SamplingInstruction) -> int:
    """The chosen id; see ``choose_with_state``."""
    return choose_with_state(logits, sampling).token_id


def choose_with_state(logits: FloatArray, sampling: SamplingInstruction) -> Choice:
    """The choice from ``logits`` [vocabulary], finite float32. Tokens that the mask does not allow, and
    banned ones, have no part in anything.

    Numbers are read as float32 (those of mirostat as float64). Greedy (ties: lowest id) when the temperature
    is 0 or no normal float32, so that its inverse is finite. Raises InternalError when nothing is allowed.
    """
    rules = sampling.rules or _NO_RULES
    settings = rules.settings
    logits = _adjusted(logits, sampling)
    temperature = np.float32(sampling.temperature)
    if temperature >= np.finfo(np.float32).tiny:
        if settings.top_n_sigma > 0:
            logits = cut_below_sigma(logits, settings.top_n_sigma)
        if settings.dynatemp_range > 0:
            temperature = dynamic_temperature(logits, temperature, settings)
    if temperature < np.finfo(np.float32).tiny:
        return Choice(int(np.argmax(logits)), rules.mirostat_mu)
    weights = weigh(logits, temperature)
    candidates = _cut(weights, sampling, settings)
    if settings.mirostat_tau > 0:
        candidates = _unsurprising(candidates, weights, rules.mirostat_mu)
    chosen = _draw(candidates, weights, uniform(sampling.seed, sampling.position))
    if settings.mirostat_tau == 0:
        return Choice(chosen, rules.mirostat_mu)
    surprise = _surprise(chosen, candidates, weights)
    return Choice(chosen, rules.mirostat_mu - settings.mirostat_eta * (surprise - settings.mirostat_tau))


def allowed_tokens(mask: TokenMask, vocabulary: int) -> NDArray[np.bool_]:
    """The mask's bits, [vocabulary]."""
    bits = np.unpackbits(mask.astype("<u4").view(np.uint8), bitorder="little", count=vocabulary)
    return bits.astype(np.bool_)


def _adjusted(logits: FloatArray, sampling: SamplingInstruction) -> FloatArray:
    """Minus infinity for what is not allowed; biases and penalties applied."""
    if sampling.mask is not None:
        logits = np.where(allowed_tokens(sampling.mask, len(logits)), logits, np.float32(-np.inf))
    if sampling.rules is not None:
        logits = adjust_logits(logits, sampling.rules)
    if logits.max() == -np.inf:
        raise InternalError(NOTHING_ALLOWED)
    return logits


def _cut(weights: FloatArray, sampling: SamplingInstruction, settings: RuleSettings) -> Candidates:
    """What min_p, top_k, typical_p, top_p and XTC leave, each measuring what those before it left."""
    top_p = np.float32(sampling.top_p)
    candidates = np.flatnonzero((weights >= np.float32(sampling.min_p)) & (weights > 0))
    is_by_id = sampling.top_k == 0 and top_p == 1 and settings.typical_p == 1
    if is_by_id and settings.xtc_probability == 0 and settings.mirostat_tau == 0:
        return candidates
    candidates = _heaviest_first(candidates, weights)
    if sampling.top_k > 0:
        candidates = candidates[: sampling.top_k]
    if settings.typical_p < 1:
        candidates = _typical(candidates, weights, float(np.float32(settings.typical_p)))
    if top_p < 1:
        candidates = _run_weighing(candidates, weights, float(top_p))
    probability = float(np.float32(settings.xtc_probability))
    if uniform(sampling.seed, sampling.position, purpose=_TOP_CHOICES_PURPOSE) < probability:
        candidates = _without_top_choices(candidates, weights, float(np.float32(settings.xtc_threshold)))
    return candidates


def _heaviest_first(candidates: Candidates, weights: FloatArray) -> Candidates:
    # A stable sort of the negated weights leaves equal weights in the order of their ids.
    candidates = np.sort(candidates)
    return candidates[np.argsort(-weights[candidates], kind="stable")]


def _run_weighing(candidates: Candidates, weights: FloatArray, share: float) -> Candidates:
    """The shortest run of the first ones whose sum reaches that share of all."""
    sums = np.cumsum(weights[candidates], dtype=np.float64)
    return candidates[: int(np.searchsorted(sums, share * sums[-1], side="left")) + 1]


def _typical(candidates: Candidates, weights: FloatArray, share: float) -> Candidates:
    """The shortest run that reaches that share, of those whose surprise is nearest to the entropy (Meister et
    al., "Locally typical sampling", 2023); ties: lower id first.
    """
    candidate_weights = weights[candidates].astype(np.float64)
    total = candidate_weights.sum()
    surprises = natural_log64(total / candidate_weights)
    products = np.floor(candidate_weights * surprises * PRODUCT_STEPS + 0.5).astype(np.int64).sum()
    entropy = float(products) / PRODUCT_STEPS / total
    distances = np.abs(surprises - entropy).astype(np.float32)
    ordered = candidates[np.lexsort((candidates, distances))]
    return _heaviest_first(_run_weighing(ordered, weights, share), weights)


def _without_top_choices(candidates: Candidates, weights: FloatArray, threshold: float) -> Candidates:
    """Of those whose share is at least ``threshold`` only the lightest stays (XTC, by P. E. Weidmann)."""
    candidate_weights = weights[candidates].astype(np.float64)
    num_top = int((candidate_weights >= threshold * candidate_weights.sum()).sum())
    return candidates[max(0, num_top - 1) :]


def _unsurprising(candidates: Candidates, weights: FloatArray, most_bits: float) -> Candidates:
    """Those whose surprise is at most ``most_bits``, and the heaviest (Basu et al., "Mirostat", 2021)."""
    total = weights[candidates].sum(dtype=np.float64)
    share = exp32(np.array([-most_bits * _NATS_PER_BIT], np.float32))[0]
    least = np.float32(total * np.float64(share))
    stays = weights[candidates] >= least
    stays[0] = True
    return candidates[stays]


def _surprise(token_id: int, candidates: Candidates, weights: FloatArray) -> float:
    """In bits, of one of the candidates."""
    total = weights[candidates].sum(dtype=np.float64)
    return float(natural_log64(total / np.float64(weights[token_id]))) / _NATS_PER_BIT


def _draw(candidates: Candidates, weights: FloatArray, share: float) -> int:
    """The first candidate whose running sum exceeds ``share`` of the total."""
    sums = np.cumsum(weights[candidates], dtype=np.float64)
    index = int(np.searchsorted(sums, share * sums[-1], side="right"))
    return int(candidates[min(index, len(candidates) - 1)])
