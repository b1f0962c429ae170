"""A clock that moves when it is told to."""

from __future__ import annotations


class ManualClock:
    """Call it for the time in seconds; ``advance`` moves it."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        assert seconds >= 0, "a monotonic clock does not go back"
        self._now += seconds
