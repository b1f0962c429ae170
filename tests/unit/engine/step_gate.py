"""Holds the steps of a scripted executor back until a test lets them through."""

from __future__ import annotations

import threading

from ferrum.core.step import StepPlan


class StepGate:
    """A ``before_step``: each step needs a permit. ``is_waiting`` is set while one waits for it."""

    def __init__(self) -> None:
        self._permits = threading.Semaphore(0)
        self.is_waiting = threading.Event()

    def __call__(self, plan: StepPlan) -> None:
        self.is_waiting.set()
        assert self._permits.acquire(timeout=10)
        self.is_waiting.clear()

    def let_through(self, num_steps: int = 1) -> None:
        if num_steps:
            self._permits.release(num_steps)
