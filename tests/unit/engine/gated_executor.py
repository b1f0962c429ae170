"""An executor whose every call can be held back, or made to fail, by a test; another one does the work."""

from __future__ import annotations

import threading
from typing import Any

from ferrum.core.step import StepPlan, StepResult
from ferrum.execution.executor import Executor


class GatedExecutor:
    """Calls wait for permits until ``open``. Then they fail if a request in them is in ``poisoned``, or if
    ``fail_next`` was set, which is used up.

    ``is_held``: a call waits and has no permit. ``failed_twice``: requests whose calls failed in a row.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._changed = threading.Condition()
        self._permits = 0
        self._is_open = False
        self.is_held = False
        self.fail_next = False
        self.poisoned: set[str] = set()
        self.failed_twice: set[str] = set()
        self._failed: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def let_through(self, num_calls: int) -> None:
        with self._changed:
            self._permits += num_calls
            self.is_held = self.is_held and not self._permits
            self._changed.notify_all()

    def open(self) -> None:
        with self._changed:
            self._is_open = True
            self.is_held = False
            self._changed.notify_all()

    def execute(self, plan: StepPlan) -> StepResult:
        with self._changed:
            while not (self._permits or self._is_open):
                self.is_held = True
                assert self._changed.wait(20), "nobody lets the step through"
            self.is_held = False
            self._permits -= bool(self._permits)
        names = {part.request_id for part in plan.parts}
        if self.fail_next or names & self.poisoned:
            self.failed_twice |= names & self._failed
            self._failed |= names
        else:
            self._failed -= names
        if self.fail_next:
            self.fail_next = False
            raise OSError("the device stumbled")
        if names & self.poisoned:
            raise ValueError(f"{names & self.poisoned} cannot be computed")
        return self._executor.execute(plan)
