"""Usage says what became of drafted tokens, by OpenAI's names for predictions, where there were any."""

from __future__ import annotations

from ferrum.core.draft_use import DraftUse
from ferrum.core.request import FinishReason, InferenceResult, Usage
from ferrum.server.core_to_wire import usage_fields


def _result(draft_use: DraftUse) -> InferenceResult:
    return InferenceResult("a", "x", (1,), FinishReason.LENGTH, Usage(3, 1), seed=0, draft_use=draft_use)


def test_accepted_and_rejected_drafts_are_summed() -> None:
    fields = usage_fields([_result(DraftUse(7, 5)), _result(DraftUse(4, 0)), _result(DraftUse())])
    assert fields["usage"] == {
        "prompt_tokens": 9,
        "completion_tokens": 3,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"accepted_prediction_tokens": 5, "rejected_prediction_tokens": 6},
    }


def test_without_drafts_there_are_no_details() -> None:
    usage = usage_fields([_result(DraftUse())])["usage"]
    assert isinstance(usage, dict)
    assert "completion_tokens_details" not in usage
