"""What the engine does with requests and steps as events of the profile, under ``execution.*``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ferrum.core.details import IterationRan
from ferrum.core.events import (
    EngineFailed,
    Event,
    FirstToken,
    RequestAdmitted,
    RequestFinished,
    RequestPreempted,
    RequestQueued,
    RequestRejected,
    StartUpPrepared,
    StepFailed,
)
from ferrum.core.request import FinishReason
from ferrum.core.request_record import RequestRecord
from ferrum.core.token_trace import trace_tokens
from ferrum.evidence.profile_event import EventError, EventKind, EventStatus, ProfileEvent
from ferrum.evidence.resource_events import Moment

ENGINE = "engine"
_MICROSECONDS = 1e6
_PROBLEMS = {
    FinishReason.ERROR: "the request ended with an error",
    FinishReason.TIMEOUT: "the request came to its deadline",
}


class ExecutionEvents:
    """Numbers execution events in their order. Used by one journal's thread only."""

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self._attributes = attributes
        self._number = 0
        self._num_iterations = 0

    def event_of(self, cause: Event, moment: Moment) -> ProfileEvent | None:
        """None for what the profile tells otherwise: counts of steps are in ``iteration``'s events."""
        match cause:
            case StartUpPrepared(duration_s=seconds):
                return self._event("startup", ENGINE, {"engines": 1}, moment, seconds)
            case RequestQueued(request_id=request_id, prompt_tokens=tokens):
                return self._event("request_accepted", request_id, {"prompt_tokens": tokens}, moment)
            case RequestAdmitted(request_id=request_id, waited_s=seconds):
                return self._event("request_admitted", request_id, {"requests": 1}, moment, seconds)
            case RequestPreempted(request_id=request_id, recompute_tokens=tokens):
                return self._event("request_preempted", request_id, {"recompute_tokens": tokens}, moment)
            case FirstToken(request_id=request_id, ttft_s=seconds):
                return self._event("first_token", request_id, {"tokens": 1}, moment, seconds)
            case RequestFinished():
                return self._finished(cause, moment)
            case RequestRejected(request_id=request_id, error=name):
                error = EventError(name, "the request was refused before it waited", is_blocking=True)
                return self._event("request_rejected", request_id, {"requests": 1}, moment, error=error)
            case EngineFailed(reason=reason, num_requests=count):
                error = EventError("engine_failed", reason, is_blocking=True)
                return self._event("engine_failed", ENGINE, {"requests": count}, moment, error=error)
            case StepFailed(error=message, num_sequences=count, num_failed=failed):
                error = EventError("step_failed", message or "no message", is_blocking=bool(failed))
                shape = {"sequences": count, "failed": failed}
                return self._event("step_failed", ENGINE, shape, moment, error=error)
            case _:
                return None

    def iteration(self, ran: IterationRan, moment: Moment) -> ProfileEvent:
        self._num_iterations += 1
        spans = {"schedule_us": ran.schedule_s, "execute_us": ran.execute_s, "publish_us": ran.publish_s}
        return self._event(
            "iteration",
            ENGINE,
            {"tokens": ran.plan.num_tokens, "sequences": len(ran.plan.parts)},
            moment,
            sum(spans.values()),
            correlation_id=f"iteration-{self._num_iterations}",
            backend_detail={name: round(seconds * _MICROSECONDS) for name, seconds in spans.items()},
        )

    def terminal_evidence(self, record: RequestRecord, moment: Moment) -> ProfileEvent:
        """The tokens that went in and came out. Shows ids, so it is for the diagnostic detail only."""
        result = record.result
        trace = trace_tokens(
            record.prompt_ids, result.token_ids, record.sampling, record.max_tokens, result.seed
        )
        is_cancelled = result.finish_reason is FinishReason.CANCELLED
        return ProfileEvent(
            ts_unix_nanos=moment.unix_nanos,
            event_id=self._next_id(),
            request_id=record.request_id,
            correlation_id=record.request_id,
            phase="engine_sequence_terminal_evidence",
            event_kind=EventKind.INSTANT,
            shape={"prompt_tokens": len(record.prompt_ids), "completion_tokens": len(result.token_ids)},
            status=EventStatus.DIAGNOSTIC_ONLY,
            attributes={
                **self._attributes,
                "termination": "client_disconnected" if is_cancelled else "completed",
                "finish_reason": result.finish_reason,
                "token_trace": asdict(trace),
            },
        )

    def _finished(self, finished: RequestFinished, moment: Moment) -> ProfileEvent:
        problem = _PROBLEMS.get(finished.reason)
        error = None if problem is None else EventError("request_failed", problem, is_blocking=True)
        shape = {"prompt_tokens": finished.prompt_tokens, "completion_tokens": finished.completion_tokens}
        return self._event(
            "request_finished",
            finished.request_id,
            shape,
            moment,
            finished.duration_s,
            error=error,
            finish_reason=finished.reason,
        )

    def _event(
        self,
        kind: str,
        request_id: str,
        shape: Mapping[str, int],
        moment: Moment,
        seconds: float | None = None,
        error: EventError | None = None,
        correlation_id: str | None = None,
        backend_detail: Mapping[str, Any] | None = None,
        **attributes: Any,
    ) -> ProfileEvent:
        is_span = seconds is not None
        return ProfileEvent(
            ts_unix_nanos=moment.unix_nanos,
            event_id=self._next_id(),
            request_id=request_id,
            correlation_id=correlation_id or request_id,
            phase=f"execution.{kind}",
            event_kind=EventKind.TIMED_SPAN if is_span else EventKind.ERROR if error else EventKind.INSTANT,
            shape=shape,
            status=EventStatus.OK if error is None else EventStatus.FAILURE,
            duration_us=None if seconds is None else max(0, round(seconds * _MICROSECONDS)),
            error=error,
            backend_detail=backend_detail,
            attributes={**self._attributes, **attributes},
        )

    def _next_id(self) -> str:
        self._number += 1
        return f"evt-engine-execution-{self._number}"
