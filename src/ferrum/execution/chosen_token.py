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
    token_id = sampler.choose(logits, choice)
    logprobs = None if choice.logprobs is None else row_logprobs(logits, token_id, choice.logprobs)
    return SampledToken(request_id, token_id, logprobs=logprobs)
