"""What is wrong with a line of the profile. Used before a line is written, and by whoever reads one."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ferrum.core.evidence_config import Entrypoint
from ferrum.evidence.profile_event import SCHEMA_VERSION, EventKind, EventStatus

_TEXTS = (
    "event_id",
    "request_id",
    "correlation_id",
    "backend",
    "runtime_preset_hash",
    "phase",
    "timestamp",
)
_CHOICES = MappingProxyType({"entrypoint": Entrypoint, "event_kind": EventKind, "status": EventStatus})
_LEDGER_ACTIONS = ("reserve", "commit", "release", "rollback")
_REASONED_ACTIONS = ("defer", "reject")
_OTHER_ACTIONS = ("request_open", "request_close", "capacity_snapshot")


def find_problem(event: Mapping[str, Any]) -> str | None:
    """The first thing wrong with ``event``, as "field: what"; None when it is a valid event."""
    return (
        _version_problem(event)
        or _text_problem(event)
        or _choice_problem(event)
        or _content_problem(event)
        or (_resource_problem(event.get("resource")) if event["event_kind"] == EventKind.RESOURCE else None)
    )


def _version_problem(event: Mapping[str, Any]) -> str | None:
    if event.get("schema_version") != SCHEMA_VERSION:
        return f"schema_version: must be {SCHEMA_VERSION}, not {event.get('schema_version')!r}"
    if not _is_count(event.get("ts_unix_nanos"), 1):
        return "ts_unix_nanos: must be nanoseconds since 1970"
    return None


def _text_problem(event: Mapping[str, Any]) -> str | None:
    for name in _TEXTS:
        value = event.get(name)
        if not isinstance(value, str) or not value.strip():
            return f"{name}: must not be blank"
    return None


def _choice_problem(event: Mapping[str, Any]) -> str | None:
    for name, kind in _CHOICES.items():
        if event.get(name) not in list(kind):
            return f"{name}: must be one of {', '.join(kind)}, not {event.get(name)!r}"
    return None


def _content_problem(event: Mapping[str, Any]) -> str | None:
    shape = event.get("shape")
    if not isinstance(shape, Mapping) or not shape:
        return "shape: must not be empty"
    if event["event_kind"] == EventKind.TIMED_SPAN and not _is_count(event.get("duration_us"), 0):
        return "duration_us: a timed span has one"
    error = event.get("error")
    if event["status"] == EventStatus.FAILURE and not isinstance(error, Mapping):
        return "error: a failure has one"
    if error is not None and not (error.get("kind") and error.get("message")):
        return "error: needs a kind and a message"
    return None


def _resource_problem(resource: Any) -> str | None:
    if not isinstance(resource, Mapping):
        return "resource: a resource event has one"
    action = resource.get("action")
    if action in _LEDGER_ACTIONS:
        if not _is_count(resource.get("amount"), 1):
            return f"resource.amount: {action} needs at least 1"
        if not (_is_count(resource.get("before"), 0) and _is_count(resource.get("after"), 0)):
            return f"resource.before: {action} needs what was held before and after"
    elif action in _REASONED_ACTIONS:
        if not resource.get("reason"):
            return f"resource.reason: {action} needs one"
    elif action not in _OTHER_ACTIONS:
        return f"resource.action: no such action as {action!r}"
    return None if resource.get("kind") and resource.get("owner_id") else "resource: needs kind and owner_id"


def _is_count(value: object, lowest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= lowest
