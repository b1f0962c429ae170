from __future__ import annotations

from typing import Any

import pytest

from ferrum.core.evidence_config import Entrypoint
from ferrum.evidence.profile_event import EventError, EventKind, EventStatus, ProfileContext, ProfileEvent
from ferrum.evidence.profile_schema import find_problem

CONTEXT = ProfileContext(Entrypoint.SERVE, "native-1", "sha256:ab", "tiny")
INSTANT = ProfileEvent(1, "evt-1", "a", "a", "execution.x", EventKind.INSTANT, {"requests": 1})
RESERVE = {"kind": "kv_block", "owner_id": "a", "action": "reserve", "amount": 1, "before": 0, "after": 1}


def _line(**changes: Any) -> dict[str, Any]:
    return {**INSTANT.to_json(CONTEXT), **changes}


def _resource(**changes: Any) -> dict[str, Any]:
    return _line(event_kind="resource", resource={**RESERVE, **changes})


def test_an_event_says_who_when_what_and_how_much() -> None:
    line = INSTANT.to_json(CONTEXT)
    assert find_problem(line) is None
    assert line["timestamp"] == "1970-01-01T00:00:00.000000001Z"
    assert (line["schema_version"], line["entrypoint"], line["model"]) == (1, "serve", "tiny")
    assert "duration_us" not in line


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (_line(schema_version=2), "schema_version"),
        (_line(ts_unix_nanos=0), "ts_unix_nanos"),
        (_line(event_id=" "), "event_id"),
        (_line(request_id=""), "request_id"),
        (_line(correlation_id=""), "correlation_id"),
        (_line(phase=""), "phase"),
        (_line(backend=""), "backend"),
        (_line(runtime_preset_hash=""), "runtime_preset_hash"),
        (_line(timestamp=None), "timestamp"),
        (_line(entrypoint="web"), "entrypoint"),
        (_line(event_kind="odd"), "event_kind"),
        (_line(status="fine"), "status"),
        (_line(shape={}), "shape"),
        (_line(event_kind="timed_span"), "duration_us"),
        (_line(event_kind="timed_span", duration_us=-1), "duration_us"),
        (_line(status="failure"), "error"),
        (_line(status="failure", error={"kind": "x", "message": ""}), "error"),
        (_line(event_kind="resource"), "resource"),
        (_resource(action="borrow"), "resource.action"),
        (_resource(amount=0), "resource.amount"),
        (_resource(amount=True), "resource.amount"),
        (_resource(before=None), "resource.before"),
        (_resource(after=-1), "resource.before"),
        (_resource(owner_id=""), "resource"),
        (_resource(action="defer"), "resource.reason"),
        (_resource(action="reject", reason=""), "resource.reason"),
    ],
)
def test_the_first_thing_wrong_is_named(line: dict[str, Any], problem: str) -> None:
    found = find_problem(line)
    assert found is not None
    assert found.split(":")[0] == problem


@pytest.mark.parametrize(
    "line",
    [
        _line(event_kind="timed_span", duration_us=0),
        _line(status="failure", error={"kind": "x", "message": "y", "blocking": True}),
        _resource(),
        _resource(action="reject", reason="QueueFull"),
        _resource(action="request_open", amount=None, before=None, after=None),
    ],
)
def test_what_is_complete_is_valid(line: dict[str, Any]) -> None:
    assert find_problem(line) is None


def test_an_error_says_what_kind_and_whether_it_stopped_something() -> None:
    error = EventError("resource_leak", "2 blocks", is_blocking=False)
    failed = ProfileEvent(
        1, "e", "a", "a", "x", EventKind.ERROR, {"n": 1}, status=EventStatus.FAILURE, error=error
    )
    line = failed.to_json(CONTEXT)
    assert line["error"] == {"kind": "resource_leak", "message": "2 blocks", "blocking": False}
    assert find_problem(line) is None
