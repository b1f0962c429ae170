"""From the engine's answers to the words of OpenAI's API."""

from __future__ import annotations

from collections.abc import Iterable

from ferrum.core.request import FinishReason, Usage

# OpenAI has no word for a model's own end; clients see "stop" for both ends of an answer.
FINISH_WORDS = {
    FinishReason.EOS: "stop",
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.CANCELLED: "cancelled",
    FinishReason.ERROR: "error",
}


def usage_object(usages: Iterable[Usage]) -> dict[str, object]:
    """The summed token counts of all choices of one answer."""
    counted = list(usages)
    prompt_tokens = sum(usage.prompt_tokens for usage in counted)
    completion_tokens = sum(usage.completion_tokens for usage in counted)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(usage.cached_tokens for usage in counted)},
    }
