"""The answers of one request: under which ids and seeds they are written, and the one result they become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ferrum.core.philox import philox4x32
from ferrum.core.request import InferenceResult, Usage
from ferrum.core.sampling_params import MAX_SEED, SamplingParams
from ferrum.scheduling.sequence import SequenceSpec

# "answ": keeps the seeds of further answers apart from the draws of tokens.
_PURPOSE = 0x616E7377


def answer_ids(request_id: str, num_answers: int) -> tuple[str, ...]:
    """The first answer has the request's own id."""
    return (request_id, *(f"{request_id}#{index}" for index in range(1, num_answers)))


def answer_seed(seed: int, index: int) -> int:
    """The first answer's is the request's own, so that it is what a request for one answer gets."""
    if index == 0:
        return seed
    words = philox4x32((index, 0, _PURPOSE, 0), (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF))
    return (words[0] << 32 | words[1]) & MAX_SEED


def answer_specs(spec: SequenceSpec, num_answers: int) -> tuple[SequenceSpec, ...]:
    """A request of its own for each answer. The prompt is scored for the first one, and for all only where
    each of them is to show it.
    """
    sampling = replace(spec.sampling, n=1, best_of=None)
    is_shown = sampling.echo and sampling.logprobs is not None
    ids = answer_ids(spec.request_id, num_answers)
    return tuple(
        replace(
            spec,
            request_id=request_id,
            sampling=sampling,
            seed=answer_seed(spec.seed, index),
            prompt_logprobs=spec.prompt_logprobs if index == 0 or is_shown else None,
            wants_cache_explanation=spec.wants_cache_explanation and index == 0,
        )
        for index, request_id in enumerate(ids)
    )


def join_answers(sampling: SamplingParams, answers: Sequence[InferenceResult]) -> InferenceResult:
    """The result of a request that had ``answers`` written, all that were; the likeliest come first if there
    are more than it wants.
    """
    if len(answers) == 1:
        return answers[0]
    kept = list(answers)
    if len(answers) > sampling.n:
        kept.sort(key=lambda answer: -(answer.cumulative_logprob or 0.0))  # stable: ties in their order
    shared = answers[0].prompt_logprobs
    first, *others = (replace(answer, prompt_logprobs=shared) for answer in kept[: sampling.n])
    usage = Usage.of_answers([answer.usage for answer in answers])
    return replace(first, usage=usage, alternatives=tuple(others))
