"""Movements of resources as events of the profile: who took what, who gave it back, who was refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ferrum.core.events import RequestPreempted, RequestRejected, RequestSubmitted
from ferrum.core.ledger_entries import LeaseDropped, LedgerEntry, OwnerClosed, ResourceMoved
from ferrum.core.owner_summary import OwnerSummary
from ferrum.core.scheduler_snapshot import SchedulerSnapshot
from ferrum.evidence.profile_event import EventError, EventKind, EventStatus, ProfileEvent

REQUEST_SLOT = "request_slot"
SCHEDULER_CAPACITY = "scheduler_capacity"
# Not a resource: the name of the capacity that a refusal is about.
WAITING_REQUESTS = "waiting_requests"
OUTSTANDING_ERROR = "resource_owner_close_outstanding"
RESOURCE_LEAK = "resource_leak"

ResourceCause = LedgerEntry | RequestSubmitted | RequestRejected | RequestPreempted


@dataclass(frozen=True, slots=True)
class Moment:
    """When something was told: wall clock for people, monotonic clock for distances."""

    unix_nanos: int
    monotonic_nanos: int


@dataclass(frozen=True, slots=True)
class EngineScene:
    """What was known of the engine when something happened; ``snapshot`` is that of the last step."""

    num_active: int
    snapshot: SchedulerSnapshot | None


class ResourceEvents:
    """Numbers resource events in their order. Used by one journal's thread only.

    ``capacities``: units there are of a resource, where that is known. ``attributes`` go into every event.
    """

    def __init__(self, capacities: Mapping[str, int], attributes: Mapping[str, Any]) -> None:
        self._capacities = capacities
        self._attributes = attributes
        self._number = 0

    def event_of(self, cause: ResourceCause, moment: Moment, scene: EngineScene) -> ProfileEvent:
        resource: dict[str, Any]
        match cause:
            case ResourceMoved():
                return self._moved(cause, moment)
            case OwnerClosed(summary=summary):
                return self._closed(summary, moment, scene)
            case LeaseDropped():
                return self._dropped(cause, moment)
            case RequestSubmitted(request_id=request_id):
                resource = {"action": "request_open", "kind": REQUEST_SLOT}
                return self._event("engine_request_open", request_id, resource, moment, scene)
            case RequestRejected(request_id=request_id, error=error):
                resource = {"action": "reject", "kind": REQUEST_SLOT, "amount": 1, "reason": error}
                return self._event("engine_request_reject", request_id, resource, moment, scene)
            case RequestPreempted(request_id=request_id, recompute_tokens=tokens):
                resource = {
                    "action": "defer",
                    "kind": SCHEDULER_CAPACITY,
                    "amount": max(1, tokens),
                    "reason": "kv_pressure",
                }
                return self._event("engine_scheduler_capacity_defer", request_id, resource, moment, scene)

    def _moved(self, moved: ResourceMoved, moment: Moment) -> ProfileEvent:
        resource = {
            "action": moved.action,
            "kind": moved.resource,
            "amount": moved.amount,
            "before": moved.before,
            "after": moved.after,
        }
        if moved.underflow:
            resource["underflow_amount"] = moved.underflow
        name = "engine_request_slot" if moved.resource == REQUEST_SLOT else f"engine_{moved.resource}"
        return self._event(f"{name}_{moved.action}", moved.owner, resource, moment)

    def _closed(self, summary: OwnerSummary, moment: Moment, scene: EngineScene) -> ProfileEvent:
        outstanding = summary.outstanding
        resource: dict[str, Any] = {
            "action": "request_close",
            "kind": REQUEST_SLOT,
            "summary": [asdict(counts) for counts in summary.resources],
            "outstanding_count": sum(outstanding.values()),
            "outstanding_kinds": sorted(outstanding),
        }
        error = None
        if outstanding:
            resource["error"] = RESOURCE_LEAK
            listed = ", ".join(f"{count} {kind}" for kind, count in sorted(outstanding.items()))
            error = EventError(
                OUTSTANDING_ERROR, f"{summary.owner} closed and still holds {listed}", is_blocking=False
            )
        return self._event("engine_request_close", summary.owner, resource, moment, scene, error)

    def _dropped(self, dropped: LeaseDropped, moment: Moment) -> ProfileEvent:
        resource = {
            "action": "capacity_snapshot",
            "kind": dropped.resource,
            "amount": dropped.amount,
            "error": RESOURCE_LEAK,
        }
        text = f"{dropped.owner} dropped a lease of {dropped.amount} {dropped.resource}"
        error = EventError("lease_dropped", text, is_blocking=False)
        return self._event("engine_lease_dropped", dropped.owner, resource, moment, error=error)

    def _event(
        self,
        phase: str,
        owner: str,
        resource: Mapping[str, Any],
        moment: Moment,
        scene: EngineScene | None = None,
        error: EventError | None = None,
    ) -> ProfileEvent:
        self._number += 1
        kind = resource["kind"]
        capacity = self._capacities.get(WAITING_REQUESTS if resource["action"] == "reject" else kind)
        known = {} if capacity is None else {"capacity": capacity}
        return ProfileEvent(
            ts_unix_nanos=moment.unix_nanos,
            event_id=f"evt-engine-resource-{self._number}",
            request_id=owner,
            correlation_id=owner,
            phase=phase,
            event_kind=EventKind.RESOURCE,
            shape={"amount": resource.get("amount", 1)},
            status=EventStatus.OK if error is None else EventStatus.FAILURE,
            resource={"owner_kind": _owner_kind(owner), "owner_id": owner, **resource, **known},
            error=error,
            attributes={**self._attributes, **({} if scene is None else _scene_attributes(moment, scene))},
        )


def _owner_kind(owner: str) -> str:
    """Pinned prefixes lease blocks under names of their own."""
    return "pin" if owner.startswith("pin:") else "request"


def _scene_attributes(moment: Moment, scene: EngineScene) -> dict[str, Any]:
    return {
        "active_sequence_count": scene.num_active,
        "monotonic_nanos": moment.monotonic_nanos,
        "scheduler_snapshot": None if scene.snapshot is None else asdict(scene.snapshot),
    }
