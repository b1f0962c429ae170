"""ProfileEvent: one line of the profile, and what makes a line a valid one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from ferrum.core.evidence_config import Entrypoint

SCHEMA_VERSION = 1


class EventKind(StrEnum):
    INSTANT = "instant"
    TIMED_SPAN = "timed_span"
    RESOURCE = "resource"
    MEMORY = "memory"
    ERROR = "error"


class EventStatus(StrEnum):
    OK = "ok"
    FAILURE = "failure"
    DIAGNOSTIC_ONLY = "diagnostic_only"


@dataclass(frozen=True, slots=True)
class ProfileContext:
    """What every event of one engine says alike.

    ``backend`` names the arithmetic; ``runtime_preset_hash`` is the digest of the configuration in effect.
    """

    entrypoint: Entrypoint
    backend: str
    runtime_preset_hash: str
    model: str | None = None


@dataclass(frozen=True, slots=True)
class EventError:
    """``is_blocking``: something did not happen because of it."""

    kind: str
    message: str
    is_blocking: bool


@dataclass(frozen=True, slots=True)
class ProfileEvent:
    """``request_id`` names the request, or "engine" for what concerns all; ``correlation_id`` ties events of
    one request or one step together. ``shape`` says how much work the event is about, in counts.
    """

    ts_unix_nanos: int
    event_id: str
    request_id: str
    correlation_id: str
    phase: str
    event_kind: EventKind
    shape: Mapping[str, int]
    status: EventStatus = EventStatus.OK
    duration_us: int | None = None
    memory: Mapping[str, int] | None = None
    resource: Mapping[str, Any] | None = None
    error: EventError | None = None
    replay: Mapping[str, Any] | None = None
    backend_detail: Mapping[str, Any] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self, context: ProfileContext) -> dict[str, Any]:
        """The event as a line of the profile; what it does not say is left out."""
        seconds, nanos = divmod(self.ts_unix_nanos, 10**9)
        moment = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        optional = {
            "model": context.model,
            "duration_us": self.duration_us,
            "memory": self.memory,
            "resource": self.resource,
            "error": None if self.error is None else _error_object(self.error),
            "replay": self.replay,
            "backend_detail": self.backend_detail,
        }
        return {
            "schema_version": SCHEMA_VERSION,
            "ts_unix_nanos": self.ts_unix_nanos,
            "timestamp": f"{moment}.{nanos:09d}Z",
            "event_id": self.event_id,
            "request_id": self.request_id,
            "correlation_id": self.correlation_id,
            "entrypoint": context.entrypoint,
            "backend": context.backend,
            "runtime_preset_hash": context.runtime_preset_hash,
            "phase": self.phase,
            "event_kind": self.event_kind,
            "status": self.status,
            "shape": self.shape,
            **{name: value for name, value in optional.items() if value is not None},
            "attributes": self.attributes,
        }


def _error_object(error: EventError) -> dict[str, Any]:
    return {"kind": error.kind, "message": error.message, "blocking": error.is_blocking}
