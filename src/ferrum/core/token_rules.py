"""TokenRules: what decides a token besides the six columns of every instruction. Knows no texts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ferrum.core.arrays import FloatArray, Int32Array


def _no_ids() -> Int32Array:
    return np.zeros(0, np.int32)


def _no_biases() -> FloatArray:
    return np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class RuleSettings:
    """The numbers of one request's rules, named as in SamplingParams; the defaults do nothing.

    ``biases`` are added to the logits of ``biased_ids``, which are distinct.
    """

    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    top_n_sigma: float = 0.0
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    typical_p: float = 1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    mirostat_tau: float = 0.0  # 0 = none
    mirostat_eta: float = 0.1
    biased_ids: Int32Array = field(default_factory=_no_ids)  # [num_biased]
    biases: FloatArray = field(default_factory=_no_biases)  # [num_biased]


@dataclass(frozen=True, slots=True, eq=False)
class TokenRules:
    """``settings`` and what they look at: the history before the token that is chosen.

    The arrays may be views of memory that grows with the request: they hold until its next token is accepted.
    ``window_counts`` says how often each of the distinct ``counted_ids`` stands in the window of the
    penalties, ``output_counts`` how often among the generated tokens of it.
    """

    settings: RuleSettings
    counted_ids: Int32Array = field(default_factory=_no_ids)  # [num_counted]
    window_counts: Int32Array = field(default_factory=_no_ids)  # [num_counted]
    output_counts: Int32Array = field(default_factory=_no_ids)  # [num_counted]
    dry_tokens: Int32Array = field(default_factory=_no_ids)  # [num_tokens], the part of the history DRY reads
    dry_limit: int = 0  # tokens since the last sequence breaker: no repetition is longer
    mirostat_mu: float = 0.0  # most surprise in bits, before this token


TokenMask = NDArray[np.uint32]
"""Bit t % 32 of word t // 32 is set where token t is allowed; ceil(vocabulary / 32) words."""
