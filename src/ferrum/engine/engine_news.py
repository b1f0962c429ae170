"""Tells the observers what the engine's thread does: steps, tokens, ends. Decides nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ferrum.core.details import IterationRan, IterationSkipped
from ferrum.core.errors import DeadlineExceeded
from ferrum.core.events import (
    EngineFailed,
    FirstToken,
    Observers,
    OutstandingAtClose,
    RequestFinished,
    RequestQueued,
    StepRan,
    TokensEmitted,
)
from ferrum.core.ledger import LifecycleLedger
from ferrum.core.request import FinishReason, InferenceResult
from ferrum.core.scheduler_snapshot import SchedulerSnapshot
from ferrum.core.step import StepPlan
from ferrum.engine.active_request import ActiveRequest
from ferrum.engine.delivery import End
from ferrum.engine.step_runner import StepOutcome

_log = logging.getLogger("ferrum.engine")


class StepTimes(NamedTuple):
    """Seconds that one step took to be planned, to be run, and until its tokens were read."""

    schedule_s: float
    execute_s: float
    publish_s: float


class EngineNews:
    """``snapshot`` is asked for only when somebody wants details. Sets when a request had its last token."""

    def __init__(
        self,
        observers: Observers,
        ledger: LifecycleLedger,
        clock: Callable[[], float],
        snapshot: Callable[[], SchedulerSnapshot],
    ) -> None:
        self._observers = observers
        self._ledger = ledger
        self._clock = clock
        self._snapshot = snapshot

    def request_queued(self, request: ActiveRequest) -> None:
        self._observers.on(RequestQueued(request.request_id, len(request.spec.prompt_ids)))

    def step_ran(self, plan: StepPlan, outcome: StepOutcome, times: StepTimes) -> None:
        self._observers.on(
            StepRan(
                schedule_s=times.schedule_s,
                execute_s=times.execute_s,
                publish_s=times.publish_s,
                num_tokens=plan.num_tokens,
                num_sequences=len(plan.parts),
                num_prefill_tokens=plan.num_prefill_tokens,
            )
        )
        if self._observers.wants_details:
            self._observers.on_detail(
                IterationRan(
                    plan,
                    len(outcome.failures),
                    times.schedule_s,
                    times.execute_s,
                    times.publish_s,
                    self._snapshot(),
                )
            )

    def step_skipped(self) -> None:
        if self._observers.wants_details:
            self._observers.on_detail(IterationSkipped(self._snapshot()))

    def tokens_chosen(self, requests: Sequence[ActiveRequest]) -> None:
        """One token for each of them; those who wanted none had one chosen for nothing."""
        now = self._clock()
        request_ids: list[str] = []
        gaps_s: list[float] = []
        for request in requests:
            if request.spec.max_tokens == 0:
                continue
            if request.last_token_at is None:
                self._observers.on(FirstToken(request.request_id, now - request.submitted_at))
            else:
                request_ids.append(request.request_id)
                gaps_s.append(now - request.last_token_at)
            request.last_token_at = now
        if request_ids:
            self._observers.on(TokensEmitted(tuple(request_ids), tuple(gaps_s)))

    def request_ended(self, request: ActiveRequest, end: End) -> None:
        """Before its caller hears of it."""
        self._observers.on(
            RequestFinished(
                request_id=request.request_id,
                reason=_finish_reason(end),
                prompt_tokens=len(request.spec.prompt_ids),
                completion_tokens=request.output.num_tokens,
                duration_s=self._clock() - request.submitted_at,
            )
        )

    def request_recorded(self, request: ActiveRequest, end: End) -> None:
        """All of it, which its caller need not wait for."""
        if self._observers.wants_details:
            duration_s = self._clock() - request.submitted_at
            self._observers.on_detail(request.record(end, _finish_reason(end), duration_s))

    def account_closed(self, request_id: str) -> None:
        """Closes the account of a request that ended; what it still holds is a leak, and said."""
        outstanding = self._ledger.close(request_id).outstanding
        if outstanding:
            _log.error("resource leak: %s ended and still holds %s", request_id, outstanding)
            self._observers.on(OutstandingAtClose(request_id, outstanding))

    def engine_failed(self, reason: str, num_requests: int) -> None:
        self._observers.on(EngineFailed(reason, num_requests))


def _finish_reason(end: End) -> FinishReason:
    if isinstance(end, InferenceResult):
        return end.finish_reason
    return FinishReason.TIMEOUT if isinstance(end, DeadlineExceeded) else FinishReason.ERROR
