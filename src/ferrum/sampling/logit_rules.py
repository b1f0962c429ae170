"""What changes a row of logits before tokens are weighed: docs/sampling.md in NumPy."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ferrum.core.arrays import FloatArray, Int32Array
from ferrum.core.token_rules import RuleSettings, TokenRules

_BANNED: Final = np.float32(-np.inf)
_LARGEST_PENALTY: Final = np.float32(1e30)
_LANES: Final = 16


def adjust_logits(logits: FloatArray, rules: TokenRules) -> FloatArray:
    """``logits`` [vocabulary] after biases and penalties, in this order."""
    settings = rules.settings
    adjusted = logits.copy()
    adjusted[settings.biased_ids] += settings.biases
    _penalize_counted(adjusted, rules)
    if settings.dry_multiplier > 0:
        _penalize_repetitions(adjusted, rules)
    return adjusted


def cut_below_sigma(logits: FloatArray, factor: float) -> FloatArray:
    """Bans logits more than ``factor`` standard deviations below the largest (Tang et al., "Top-n sigma",
    2024).
    """
    is_allowed = logits > _BANNED
    num_allowed = int(is_allowed.sum())
    mean = _lane_sum(np.where(is_allowed, logits, 0).astype(np.float64)) / num_allowed
    distances = np.where(is_allowed, logits.astype(np.float64) - mean, 0.0)
    sigma = np.sqrt(_lane_sum(distances * distances) / num_allowed)
    least = float(logits.max()) - float(np.float32(factor)) * sigma
    return np.where(logits.astype(np.float64) < least, _BANNED, logits)


def repetition_lengths(tokens: Int32Array) -> Int32Array:
    """[num_tokens]: at k, how many tokens before the k-th last one agree with those before the last one.

    Both of them are counted; 0 at k = 0.
    """
    reverse = tokens[::-1]
    lengths = np.zeros(len(tokens), np.int32)
    for k in range(1, len(tokens)):
        differs = reverse[k:] != reverse[: len(tokens) - k]
        lengths[k] = int(np.argmax(differs)) if differs.any() else len(differs)
    return lengths


def _penalize_counted(logits: FloatArray, rules: TokenRules) -> None:
    settings = rules.settings
    repeated = rules.counted_ids[rules.window_counts > 0]
    if settings.repetition_penalty != 1:
        penalty, values = np.float32(settings.repetition_penalty), logits[repeated]
        logits[repeated] = np.where(values > 0, values / penalty, values * penalty)
    is_written = rules.output_counts > 0
    counts = rules.output_counts[is_written].astype(np.float32)
    penalties = np.float32(settings.frequency_penalty) * counts + np.float32(settings.presence_penalty)
    logits[rules.counted_ids[is_written]] -= penalties


def _penalize_repetitions(logits: FloatArray, rules: TokenRules) -> None:
    """Each token that would go on with a repetition is penalised once, for the longest of them."""
    settings, tokens = rules.settings, rules.dry_tokens
    if rules.dry_limit < settings.dry_allowed_length:
        return
    longest: dict[int, int] = {}
    for k, length in enumerate(repetition_lengths(tokens).tolist()):
        if length >= settings.dry_allowed_length:
            following = int(tokens[len(tokens) - k])
            longest[following] = max(longest.get(following, 0), min(length, rules.dry_limit))
    for token_id, length in longest.items():
        logits[token_id] -= _dry_penalty(settings, length)


def _dry_penalty(settings: RuleSettings, length: int) -> np.float32:
    penalty, base = np.float32(settings.dry_multiplier), np.float32(settings.dry_base)
    for _ in range(length - settings.dry_allowed_length if base != 1 else 0):
        penalty *= base
        if penalty >= _LARGEST_PENALTY:
            break
    return min(penalty, _LARGEST_PENALTY)


def _lane_sum(values: NDArray[np.float64]) -> float:
    """In 16 lanes by id, folded 16, 8, 4, 2, 1."""
    padded = np.concatenate([values, np.zeros(-len(values) % _LANES)]).reshape(-1, _LANES)
    lanes = np.cumsum(padded, axis=0)[-1]
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    return float(lanes[0])
