"""What a failed request, or a failed engine, leaves for whoever has to find out why."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from ferrum.core.details import IterationRan
from ferrum.core.errors import FerrumError
from ferrum.core.events import EngineFailed
from ferrum.core.request_record import RequestRecord

# Steps before the failure that are told.
RECENT_ITERATIONS = 32


def failure_diagnostics(
    record: RequestRecord, error: FerrumError, recent: Iterable[IterationRan]
) -> dict[str, Any]:
    """The error, where it was raised, how far the request was, and what the last steps did. No texts of
    requests; a message of an exception is as its author wrote it.
    """
    return {
        "request_id": record.request_id,
        "error": _error_object(error),
        "causes": [_error_object(cause) for cause in _causes(error)],
        "prompt_tokens": len(record.prompt_ids),
        "completion_tokens": len(record.result.token_ids),
        "duration_s": record.duration_s,
        "recent_iterations": [_iteration_object(iteration) for iteration in recent],
    }


def engine_diagnostics(failed: EngineFailed, recent: Iterable[IterationRan]) -> dict[str, Any]:
    """Why the engine makes no steps, what the last ones did, and where every thread of the process is now."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return {
        "reason": failed.reason,
        "num_requests": failed.num_requests,
        "recent_iterations": [_iteration_object(iteration) for iteration in recent],
        "threads": {
            f"{names.get(ident, 'unknown')}/{ident}": _places(traceback.extract_stack(frame))
            for ident, frame in sys._current_frames().items()
        },
    }


def _causes(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    cause = error.__cause__
    while cause is not None and cause not in found:
        found.append(cause)
        cause = cause.__cause__
    return found


def _error_object(error: BaseException) -> dict[str, Any]:
    return {
        "type": type(error).__name__,
        "message": str(error),
        "raised_in": _places(traceback.extract_tb(error.__traceback__)),
    }


def _places(frames: traceback.StackSummary) -> list[str]:
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]


def _iteration_object(iteration: IterationRan) -> dict[str, Any]:
    return {
        "requests": {part.request_id: len(part.token_ids) for part in iteration.plan.parts},
        "num_failed": iteration.num_failed,
        "execute_s": iteration.execute_s,
        "snapshot": asdict(iteration.snapshot),
    }
