"""SchedulerTraceRecorder: the observer that writes down what the scheduler planned, step by step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from ferrum.core.details import Detail, IterationRan, IterationSkipped
from ferrum.core.events import Event, RequestAdmitted, RequestFinished, RequestPreempted
from ferrum.core.request import FinishReason
from ferrum.core.step import SequencePart
from ferrum.evidence.jsonl_journal import JsonlJournal, JsonObject

# Of iterations without a plan, one after another, the first few are written and then one in so many.
FIRST_SKIPPED, EVERY_SKIPPED = 4, 128


class SchedulerTraceRecorder:
    """One ``scheduler_iteration`` object a step: the plan, the queues after it, totals so far, times.

    ``outcome``: ``none`` (nothing to run), ``some_ok``, or ``some_error`` (a request failed in it).
    """

    def __init__(self, journal: JsonlJournal) -> None:
        self._journal = journal.share()
        self._iteration = 0
        self._skipped_in_a_row = 0
        self._totals = {"admitted": 0, "preempted": 0, "completed": 0, "failed": 0, "cancelled": 0}

    def on(self, event: Event) -> None:
        if isinstance(event, RequestAdmitted | RequestPreempted | RequestFinished):
            self._journal.put(partial(self._count, event))

    def on_detail(self, detail: Detail) -> None:
        if isinstance(detail, IterationRan | IterationSkipped):
            self._journal.put(partial(self._lines, detail, time.time_ns()))

    def close(self) -> None:
        self._journal.close()

    def _count(self, event: RequestAdmitted | RequestPreempted | RequestFinished) -> tuple[()]:
        self._totals[_total_of(event)] += 1
        return ()

    def _lines(self, detail: IterationRan | IterationSkipped, unix_nanos: int) -> Iterator[JsonObject]:
        self._iteration += 1
        head = {
            "type": "scheduler_iteration",
            "ts_unix_nanos": unix_nanos,
            "iteration": self._iteration,
            "snapshot": asdict(detail.snapshot),
            "totals": dict(self._totals),
        }
        if isinstance(detail, IterationSkipped):
            self._skipped_in_a_row += 1
            if self._skipped_in_a_row <= FIRST_SKIPPED or self._skipped_in_a_row % EVERY_SKIPPED == 0:
                yield {**head, "outcome": "none", "skipped_in_a_row": self._skipped_in_a_row}
            return
        self._skipped_in_a_row = 0
        yield {
            **head,
            "outcome": "some_error" if detail.num_failed else "some_ok",
            "num_failed": detail.num_failed,
            "plan": [_part_object(part) for part in detail.plan.parts],
            "schedule_s": detail.schedule_s,
            "execute_s": detail.execute_s,
            "publish_s": detail.publish_s,
        }


def _total_of(event: RequestAdmitted | RequestPreempted | RequestFinished) -> str:
    if isinstance(event, RequestAdmitted):
        return "admitted"
    if isinstance(event, RequestPreempted):
        return "preempted"
    ends = {
        FinishReason.CANCELLED: "cancelled",
        FinishReason.ERROR: "failed",
        FinishReason.TIMEOUT: "failed",
    }
    return ends.get(event.reason, "completed")


def _part_object(part: SequencePart) -> dict[str, Any]:
    """Positions and counts; no token ids, which are what somebody wrote."""
    return {
        "request_id": part.request_id,
        "start_position": part.start_position,
        "num_tokens": len(part.token_ids),
        "num_blocks": len(part.block_table),
        "chooses": bool(part.choices),
    }
