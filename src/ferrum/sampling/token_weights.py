"""From logits to the weights that tokens are drawn by.

A weight is a multiple of 2^-32 and at most 1, so that float64 sums of up to 2^21 of them are exact: NumPy may
add them in any order, and so may the kernels.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ferrum.core.arrays import FloatArray
from ferrum.core.float_math import exp32, natural_log64
from ferrum.core.token_rules import RuleSettings

_GRID_STEP: Final = np.float32(2.0**-9)
PRODUCT_STEPS: Final = 2.0**32
"""Products of weights and logarithms are rounded to multiples of one over this, to add up exactly too."""


def weigh(logits: FloatArray, temperature: np.float32) -> FloatArray:
    """exp((logit - largest) / temperature), rounded to a multiple of 2^-32: [vocabulary], the most is 1."""
    with np.errstate(over="ignore"):  # A distant logit at a tiny temperature is minus infinity: weight 0.
        weights = exp32((logits - logits.max()) * (np.float32(1.0) / temperature))
    return np.where(weights < _GRID_STEP, (weights + _GRID_STEP) - _GRID_STEP, weights)


def dynamic_temperature(logits: FloatArray, temperature: np.float32, settings: RuleSettings) -> np.float32:
    """Between ``temperature`` - range and + range, by the share that the entropy of the allowed tokens has of
    the largest there can be, to the power of the exponent.
    """
    num_allowed = int((logits > -np.inf).sum())
    if num_allowed < 2:
        return temperature
    weights = weigh(logits, np.float32(1.0))
    is_positive = weights > 0
    distances = (logits.max() - logits[is_positive]).astype(np.float64)
    products = np.floor(weights[is_positive].astype(np.float64) * distances * PRODUCT_STEPS + 0.5)
    total = float(weights.sum(dtype=np.float64))
    entropy = natural_log64(total) + float(products.astype(np.int64).sum()) / PRODUCT_STEPS / total
    share = entropy / natural_log64(float(num_allowed))
    power = np.float32(0.0)
    if share > 0:
        exponent = float(np.float32(settings.dynatemp_exponent))
        power = min(exp32(np.array([exponent * natural_log64(share)], np.float32))[0], np.float32(1.0))
    reach = np.float32(settings.dynatemp_range)
    lowest = temperature - reach if temperature > reach else np.float32(0.0)
    return np.float32(lowest + (temperature + reach - lowest) * power)
