"""A token chosen in Python from one row of logits, for executors whose runtime chooses none."""

from __future__ import annotations

import numpy as np

from ferrum.core.arrays import FloatArray
from ferrum.core.errors import ForbiddenToken
from ferrum.core.step import SampledToken, SamplingInstruction
from ferrum.core.token_gate import is_allowed
from ferrum.runtimes.exact_log_probabilities import row_logprobs
from ferrum.sampling.reference_sampler import Choice
from ferrum.sampling.sampler import Sampler

# A sampler of somebody else's may pay no heed to masks: what it may not choose is taken away, so many times.
MOST_ATTEMPTS = 64


def choose_with(
    sampler: Sampler, request_id: str, logits: FloatArray, choice: SamplingInstruction
) -> SampledToken:
    """What ``sampler`` chooses from ``logits`` [vocabulary], with log-probabilities where they are wanted.

    Raises ForbiddenToken when it insists on tokens that the mask does not allow.
    """
    chosen = _choose_allowed(sampler, logits, choice)
    token_id = chosen.token_id
    logprobs = None if choice.logprobs is None else row_logprobs(logits, token_id, choice.logprobs)
    mu = chosen.mirostat_mu if choice.has_mirostat else None
    return SampledToken(request_id, token_id, logprobs=logprobs, mirostat_mu=mu)


def _choose_allowed(sampler: Sampler, logits: FloatArray, choice: SamplingInstruction) -> Choice:
    for _ in range(MOST_ATTEMPTS):
        chosen = sampler.choose(logits, choice)
        if is_allowed(choice.mask, chosen.token_id):
            return chosen
        logits = logits.copy()
        logits[chosen.token_id] = -np.inf
    raise ForbiddenToken(chosen.token_id, attempts=MOST_ATTEMPTS)
