"""A token chosen in Python from one row of logits, for executors whose runtime chooses none."""

from __future__ import annotations

from ferrum.core.arrays import FloatArray
from ferrum.core.step import SampledToken, SamplingInstruction
from ferrum.runtimes.exact_log_probabilities import row_logprobs
from ferrum.sampling.sampler import Sampler


def choose_with(
    sampler: Sampler, request_id: str, logits: FloatArray, choice: SamplingInstruction
) -> SampledToken:
    """What ``sampler`` chooses from ``logits`` [vocabulary], with log-probabilities where they are wanted."""
    chosen = sampler.choose(logits, choice)
    token_id = chosen.token_id
    logprobs = None if choice.logprobs is None else row_logprobs(logits, token_id, choice.logprobs)
    mu = chosen.mirostat_mu if choice.has_mirostat else None
    return SampledToken(request_id, token_id, logprobs=logprobs, mirostat_mu=mu)
