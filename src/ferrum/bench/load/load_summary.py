"""The figures of a load, from the records of its requests."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ferrum.bench.load.answer_record import AnswerRecord
from ferrum.bench.statistics import Percentiles, percentiles_of


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """Rates and times count complete answers only; ``errors`` counts the others by their reason.

    ``num_off_length`` answers had another length than asked for: rates of two servers then do not compare.
    """

    num_requests: int
    num_complete: int
    num_off_length: int
    duration_s: float
    prompt_tokens: int
    output_tokens: int
    first_token_ms: Percentiles | None
    gap_ms: Percentiles | None
    answer_ms: Percentiles | None
    errors: dict[str, int]

    @property
    def requests_per_second(self) -> float:
        return self.num_complete / self.duration_s if self.duration_s else 0.0

    @property
    def output_tokens_per_second(self) -> float:
        return self.output_tokens / self.duration_s if self.duration_s else 0.0

    @property
    def prompt_tokens_per_second(self) -> float:
        return self.prompt_tokens / self.duration_s if self.duration_s else 0.0

    def as_json(self) -> dict[str, object]:
        return {
            "num_requests": self.num_requests,
            "num_complete": self.num_complete,
            "num_errors": self.num_requests - self.num_complete,
            "errors": self.errors,
            "num_off_length": self.num_off_length,
            "duration_s": self.duration_s,
            "requests_per_second": self.requests_per_second,
            "output_tokens": self.output_tokens,
            "output_tokens_per_second": self.output_tokens_per_second,
            "prompt_tokens": self.prompt_tokens,
            "prompt_tokens_per_second": self.prompt_tokens_per_second,
            "first_token_ms": _json(self.first_token_ms),
            "gap_ms": _json(self.gap_ms),
            "largest_gap_ms": self.gap_ms.largest if self.gap_ms else None,
            "answer_ms": _json(self.answer_ms),
        }


def summarise(records: Sequence[AnswerRecord], output_tokens: int) -> LoadSummary:
    """``output_tokens`` is what was asked of every request; ``records`` is not empty."""
    complete = [record for record in records if record.error is None]
    first_times = [record.first_token_s for record in complete]
    return LoadSummary(
        num_requests=len(records),
        num_complete=len(complete),
        num_off_length=sum(record.num_tokens != output_tokens for record in complete),
        duration_s=max(each.ended_at for each in records) - min(each.sent_at for each in records),
        prompt_tokens=sum(record.prompt_tokens or 0 for record in complete),
        output_tokens=sum(record.num_tokens for record in complete),
        first_token_ms=percentiles_of([first * 1e3 for first in first_times if first is not None]),
        gap_ms=percentiles_of([gap * 1e3 for record in complete for gap in record.gaps_s]),
        answer_ms=percentiles_of([(record.ended_at - record.sent_at) * 1e3 for record in complete]),
        errors=dict(Counter(_kind(record.error) for record in records if record.error is not None)),
    )


def _kind(error: str) -> str:
    """Numbers differ between errors of one kind (ids, seconds), except a status."""
    status, colon, rest = error.partition(":") if error.startswith("status ") else ("", "", error)
    return status + colon + re.sub(r"\d+(\.\d+)?", "N", rest)


def _json(percentiles: Percentiles | None) -> dict[str, float | int] | None:
    return percentiles.as_json() if percentiles else None
