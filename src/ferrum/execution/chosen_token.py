"""A token chosen in Python from one row of logits, for executors whose runtime chooses none."""

from __future__ import annotations

import numpy as np

from ferrum.core.arrays import FloatArray
from ferrum.core.errors import ForbiddenToken
from ferrum.core.step import SampledToken, SamplingInstruction
from ferrum.core.token_gate import is_allowed
from ferrum.runtimes.exact_log_probabilities import row_logprobs
from ferrum.sampling.sampler import Sampler

# A sampler of somebody else's may pay no heed to masks: what it may not choose is taken away, so many times.
MOST_ATTEMPTS = 64


def choose_with(
    sampler: Sampler, request_id: str, logits: FloatArray, choice: SamplingInstruction
) -> SampledToken:
    """What ``sampler`` chooses from ``logits`` [vocabulary], with log-probabilities where they are wanted.

    Raises ForbiddenToken when it insists on tokens that the mask does not allow.
    """
    token_id = _choose_allowed(sampler, logits, choice)
    logprobs = None if choice.logprobs is None else row_logprobs(logits, token_id, choice.logprobs)
    return SampledToken(request_id, token_id, logprobs=logprobs)


def _choose_allowed(sampler: Sampler, logits: FloatArray, choice: SamplingInstruction) -> int:
    for _ in range(MOST_ATTEMPTS):
        token_id = sampler.choose(logits, choice)
        if is_allowed(choice.mask, token_id):
            return token_id
        logits = logits.copy()
        logits[token_id] = -np.inf
    raise ForbiddenToken(token_id, attempts=MOST_ATTEMPTS)
