from __future__ import annotations

import logging

import pytest

from ferrum.core.details import Detail
from ferrum.core.events import Event, Observers, RequestSubmitted
from ferrum.core.ledger_entries import LeaseDropped


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


class _Writer(_Recorder):
    def __init__(self, problem: Exception | None = None) -> None:
        super().__init__()
        self.details: list[Detail] = []
        self.num_closed = 0
        self._problem = problem

    def on_detail(self, detail: Detail) -> None:
        self.details.append(detail)
        if self._problem is not None:
            raise self._problem

    def close(self) -> None:
        self.num_closed += 1
        if self._problem is not None:
            raise self._problem


def test_details_are_wanted_only_while_somebody_takes_them() -> None:
    assert not Observers((_Recorder(),)).wants_details
    writer = _Writer()
    observers = Observers((_Recorder(), writer))
    assert observers.wants_details
    observers.on_detail(LeaseDropped("a", "kv_block", 1))
    observers.close()
    assert not observers.wants_details
    observers.on_detail(LeaseDropped("b", "kv_block", 1))
    assert (writer.details, writer.num_closed) == ([LeaseDropped("a", "kv_block", 1)], 1)


def test_a_writer_that_raises_is_left_out_and_the_others_are_closed() -> None:
    broken, closing, healthy = _Writer(ValueError("disk")), _Writer(), _Writer()
    observers = Observers((broken, closing, healthy))
    for _ in range(2):
        observers.on_detail(LeaseDropped("a", "kv_block", 1))
    closing._problem = ValueError("disk")
    observers.close()
    assert len(broken.details) == 1
    assert (len(healthy.details), healthy.num_closed) == (2, 1)
