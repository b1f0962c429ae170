"""What only those want to know who write it down: every movement of a resource, every step, whole requests.

Nothing of this is built while nobody wants it; see Observers.wants_details.
"""

from __future__ import annotations

from dataclasses import dataclass

from ferrum.core.ledger_entries import LeaseDropped, OwnerClosed, ResourceMoved
from ferrum.core.request_record import RequestRecord
from ferrum.core.scheduler_snapshot import SchedulerSnapshot
from ferrum.core.step import StepPlan


@dataclass(frozen=True, slots=True)
class IterationRan:
    """A step was planned and run; times are seconds, ``snapshot`` is what was left afterwards.

    ``num_failed`` requests failed in it.
    """

    plan: StepPlan
    num_failed: int
    schedule_s: float
    execute_s: float
    publish_s: float
    snapshot: SchedulerSnapshot


@dataclass(frozen=True, slots=True)
class IterationSkipped:
    """There was nothing to run: those who were to run had been cancelled."""

    snapshot: SchedulerSnapshot


Detail = ResourceMoved | OwnerClosed | LeaseDropped | IterationRan | IterationSkipped | RequestRecord
