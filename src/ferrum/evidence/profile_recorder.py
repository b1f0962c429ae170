"""ProfileRecorder: the observer that writes the profile."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ferrum.core.details import Detail, IterationRan, IterationSkipped
from ferrum.core.events import (
    Event,
    RequestFinished,
    RequestPreempted,
    RequestQueued,
    RequestRejected,
    RequestSubmitted,
    StepRan,
    TokensEmitted,
)
from ferrum.core.evidence_config import Entrypoint, ProfileDetail
from ferrum.core.ledger_entries import LeaseDropped, OwnerClosed, ResourceMoved
from ferrum.core.request_record import RequestRecord
from ferrum.core.scheduler_snapshot import SchedulerSnapshot
from ferrum.evidence.execution_events import ExecutionEvents
from ferrum.evidence.jsonl_journal import JsonlJournal, JsonObject
from ferrum.evidence.profile_event import ProfileContext, ProfileEvent
from ferrum.evidence.profile_schema import find_problem
from ferrum.evidence.resource_events import EngineScene, Moment, ResourceEvents

_log = logging.getLogger("ferrum.evidence")


class ProfileRecorder:
    """Whoever reports pays for two clock readings and a place in the journal's queue; events are built,
    checked and written on the journal's thread. An event that breaks the schema is left out, with a warning.
    """

    def __init__(
        self,
        journal: JsonlJournal,
        context: ProfileContext,
        detail: ProfileDetail = ProfileDetail.STANDARD,
        capacities: Mapping[str, int] | None = None,
    ) -> None:
        self._journal = journal.share()
        self._context = context
        self._shows_tokens = detail is ProfileDetail.DIAGNOSTIC
        attributes = _common_attributes(context, detail)
        self._resources = ResourceEvents(capacities or {}, {**attributes, "resource_trace_source": "engine"})
        self._execution = ExecutionEvents(attributes)
        self._num_active = 0
        self._snapshot: SchedulerSnapshot | None = None

    def on(self, event: Event) -> None:
        # Steps come as details, with their plans; the gaps between tokens are in the metrics.
        if not isinstance(event, StepRan | TokensEmitted):
            self._journal.put(partial(self._lines_of_event, event, _now()))

    def on_detail(self, detail: Detail) -> None:
        if not isinstance(detail, RequestRecord) or self._shows_tokens:
            self._journal.put(partial(self._lines_of_detail, detail, _now()))

    def close(self) -> None:
        self._journal.close()

    def _lines_of_event(self, event: Event, moment: Moment) -> Iterator[JsonObject]:
        if isinstance(event, RequestQueued):
            self._num_active += 1
        elif isinstance(event, RequestFinished):
            self._num_active -= 1
        if isinstance(event, RequestSubmitted | RequestRejected | RequestPreempted):
            yield from self._valid(self._resources.event_of(event, moment, self._scene))
        execution = self._execution.event_of(event, moment)
        if execution is not None:
            yield from self._valid(execution)

    def _lines_of_detail(self, detail: Detail, moment: Moment) -> Iterator[JsonObject]:
        match detail:
            case ResourceMoved() | OwnerClosed() | LeaseDropped():
                yield from self._valid(self._resources.event_of(detail, moment, self._scene))
            case IterationRan(snapshot=snapshot):
                self._snapshot = snapshot
                yield from self._valid(self._execution.iteration(detail, moment))
            case IterationSkipped(snapshot=snapshot):
                self._snapshot = snapshot
            case RequestRecord():
                yield from self._valid(self._execution.terminal_evidence(detail, moment))

    @property
    def _scene(self) -> EngineScene:
        return EngineScene(self._num_active, self._snapshot)

    def _valid(self, event: ProfileEvent) -> Iterator[JsonObject]:
        line = event.to_json(self._context)
        problem = find_problem(line)
        if problem is None:
            yield line
        else:
            _log.warning("an event of the profile is left out (%s): %s", event.phase, problem)


def _now() -> Moment:
    return Moment(time.time_ns(), time.monotonic_ns())


def _common_attributes(context: ProfileContext, detail: ProfileDetail) -> dict[str, Any]:
    return {
        "actual_model_smoke": context.entrypoint in (Entrypoint.RUN, Entrypoint.SERVE),
        "backend_device": "cpu",
        "backend_type": context.backend,
        "diagnostic_only": detail is ProfileDetail.DIAGNOSTIC,
        "l0_only": False,
        "profile_detail": detail,
    }
