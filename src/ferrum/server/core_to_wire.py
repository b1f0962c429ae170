"""From the engine's answers to the words of OpenAI's API."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace

from ferrum.core.request import FinishReason, InferenceResult, Usage

# OpenAI has no word for a model's own end; clients see "stop" for both ends of an answer. Its words have none
# for answers that were cut short from outside either.
FINISH_WORDS = {
    FinishReason.EOS: "stop",
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.CANCELLED: "cancelled",
    FinishReason.TIMEOUT: "timeout",
    FinishReason.ERROR: "error",
}


def end_fields(result: InferenceResult) -> dict[str, object]:
    """Why a choice ended; ``stop_reason`` (vLLM's) is there when the caller's stop string or token did it."""
    reason = {} if result.stop_reason is None else {"stop_reason": result.stop_reason}
    return {"finish_reason": FINISH_WORDS[result.finish_reason], **reason}


def joined(answers: Sequence[InferenceResult]) -> InferenceResult:
    """One result of the answers to one request, that came one by one."""
    first, *others = answers
    usage = Usage.of_answers([answer.usage for answer in answers])
    return replace(first, usage=usage, alternatives=tuple(others))


def usage_object(usages: Iterable[Usage]) -> dict[str, object]:
    """The summed token counts of all requests of one answer."""
    counted = list(usages)
    prompt_tokens = sum(usage.prompt_tokens for usage in counted)
    completion_tokens = sum(usage.completion_tokens for usage in counted)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(usage.cached_tokens for usage in counted)},
    }


def usage_fields(results: Iterable[InferenceResult]) -> dict[str, object]:
    """``usage`` of an answer with the choices of these requests, and beside it what they asked to know."""
    requests = list(results)
    usage = usage_object(result.usage for result in requests)
    ended = [answer for result in requests for answer in result.answers]
    drafted = sum(result.draft_use.drafted for result in ended)
    if drafted:
        accepted = sum(result.draft_use.accepted for result in ended)
        usage["completion_tokens_details"] = {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": drafted - accepted,
        }
    fields: dict[str, object] = {"usage": usage}
    explanations = [asdict(each) for result in ended if (each := result.cache_explanation) is not None]
    if explanations:
        fields["cache_explanations"] = explanations
    traces = [asdict(trace) for result in ended if (trace := result.token_trace) is not None]
    if traces:
        fields["token_traces"] = traces
    return fields
