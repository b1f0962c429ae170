"""BundleRecorder: the observer that leaves a replay bundle for requests that failed, or for all."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ferrum.core.details import Detail, IterationRan
from ferrum.core.errors import DeadlineExceeded, InvalidConfig
from ferrum.core.events import EngineFailed, Event
from ferrum.core.evidence_config import BundleOccasion
from ferrum.core.request_record import RequestRecord
from ferrum.evidence.background_writer import BackgroundWriter, Lost
from ferrum.evidence.bundle_files import DIAGNOSTICS, ENGINE_DIAGNOSTICS, BundleContext, bundle_files
from ferrum.evidence.failure_diagnostics import (
    RECENT_ITERATIONS,
    engine_diagnostics,
    failure_diagnostics,
)

_log = logging.getLogger("ferrum.evidence")
_MOST_NAME_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class _EndedRequest:
    record: RequestRecord
    recent: tuple[IterationRan, ...]
    unix_nanos: int


@dataclass(frozen=True, slots=True)
class _FailedEngine:
    diagnostics: Mapping[str, Any]
    unix_nanos: int


_Task = _EndedRequest | _FailedEngine


class BundleRecorder:
    """Writes at most ``limit`` bundles, each a folder in ``directory`` that appears whole or not at all and
    only its owner can read. Whoever reports never waits; a disk that fails is told once.

    Raises InvalidConfig when the folder cannot be made or written to.
    """

    def __init__(
        self,
        directory: str,
        context: BundleContext,
        occasion: BundleOccasion = BundleOccasion.FAILED,
        limit: int = 100,
    ) -> None:
        self._directory = _make_directory(Path(directory))
        self._context = context
        self._occasion = occasion
        self._limit = limit
        self._num_bundles = 0
        self._recent: deque[IterationRan] = deque(maxlen=RECENT_ITERATIONS)
        # Whole requests, so few of them: what a burst of failures leaves.
        self._writer: BackgroundWriter[_Task] = BackgroundWriter(
            f"replay bundles in {directory}", self._write, capacity=256
        )

    @property
    def problem(self) -> str | None:
        """Why nothing more is written; None while all is well."""
        return self._writer.problem

    def on(self, event: Event) -> None:
        """Of the events, only the failure of the whole engine tells more than the records of requests."""
        if isinstance(event, EngineFailed):
            self._writer.put(_FailedEngine(engine_diagnostics(event, tuple(self._recent)), time.time_ns()))

    def on_detail(self, detail: Detail) -> None:
        if isinstance(detail, IterationRan):
            self._recent.append(detail)
        elif isinstance(detail, RequestRecord) and self._is_wanted(detail):
            self._num_bundles += 1
            if self._num_bundles <= self._limit:
                self._writer.put(_EndedRequest(detail, tuple(self._recent), time.time_ns()))
            elif self._num_bundles == self._limit + 1:
                _log.warning("%d replay bundles were written; no more will be", self._limit)

    def close(self) -> None:
        self._writer.close()

    def _is_wanted(self, record: RequestRecord) -> bool:
        """A deadline that passed is no fault to look into."""
        has_failed = record.error is not None and not isinstance(record.error, DeadlineExceeded)
        return self._occasion is BundleOccasion.ALL or has_failed

    def _write(self, tasks: Sequence[_Task | Lost]) -> None:
        for task in tasks:
            if isinstance(task, Lost):
                _log.warning("%d replay bundles were left out: too many at once", task.count)
            elif isinstance(task, _FailedEngine):
                path = self._directory / f"{_moment(task.unix_nanos)}-{os.getpid()}-{ENGINE_DIAGNOSTICS}"
                path.write_text(_as_text(task.diagnostics), encoding="utf-8")
            else:
                self._write_bundle(task)

    def _write_bundle(self, task: _EndedRequest) -> None:
        name = _folder_name(task)
        target = self._directory / name
        argv = ("ferrum", "replay-bundle", str(target.absolute()))
        files = bundle_files(task.record, self._context, task.unix_nanos, argv)
        if task.record.error is not None:
            files[DIAGNOSTICS] = failure_diagnostics(task.record, task.record.error, task.recent)
        temporary = self._directory / f".{name}.part"
        try:
            temporary.mkdir(mode=0o700)
            for file_name, content in files.items():
                (temporary / file_name).write_text(_as_text(content), encoding="utf-8")
            temporary.rename(target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def _folder_name(task: _EndedRequest) -> str:
    """Sorts by time; unlike any other, whatever the request was called."""
    shown = re.sub(r"[^A-Za-z0-9_-]+", "-", task.record.request_id)[:_MOST_NAME_CHARACTERS]
    return f"{_moment(task.unix_nanos)}-{os.getpid()}-{shown}"


def _moment(unix_nanos: int) -> str:
    seconds, nanos = divmod(unix_nanos, 10**9)
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(seconds))}-{nanos:09d}"


def _as_text(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content, indent=2) + "\n"


def _make_directory(directory: Path) -> Path:
    setting = "evidence.bundle_dir"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidConfig(setting, f"cannot make the folder {directory}: {error.strerror}") from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise InvalidConfig(setting, f"cannot write into {directory}")
    return directory
