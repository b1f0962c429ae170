from __future__ import annotations

import logging

import pytest

from ferrum.core.events import Event, Observers, RequestSubmitted


class _Recorder:
    def __init__(self) -> None:
        self.seen: list[Event] = []

    def on(self, event: Event) -> None:
        self.seen.append(event)


class _Broken:
    def __init__(self) -> None:
        self.num_calls = 0

    def on(self, event: Event) -> None:
        self.num_calls += 1
        raise ValueError("a gauge went below zero")


def test_an_observer_that_raises_is_left_out_and_hurts_nobody(caplog: pytest.LogCaptureFixture) -> None:
    broken, recorder = _Broken(), _Recorder()
    observers = Observers((broken, recorder))
    with caplog.at_level(logging.ERROR):
        observers.on(RequestSubmitted("a"))
        observers.on(RequestSubmitted("b"))
    assert broken.num_calls == 1
    assert recorder.seen == [RequestSubmitted("a"), RequestSubmitted("b")]
    assert "left out" in caplog.text
