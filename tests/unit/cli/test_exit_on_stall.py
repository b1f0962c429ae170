"""The process ends, once, when the engine has stopped making steps, and at nothing else."""

from __future__ import annotations

import threading

import pytest

from ferrum.cli.exit_on_stall import EXIT_CODE, ExitOnStall
from ferrum.core.events import EngineFailed, RequestSubmitted, StepFailed


def test_it_ends_the_process_once_with_a_reason(capfd: pytest.CaptureFixture[str]) -> None:
    codes: list[int] = []
    ended = threading.Event()

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    observer = ExitOnStall(end, flush_s=0.01)
    observer.on(RequestSubmitted("a"))
    observer.on(StepFailed("boom", 2, 1))
    assert not ended.wait(0.05)
    observer.on(EngineFailed("no step for 9 s", 3))
    observer.on(EngineFailed("no step for 12 s", 3))
    assert ended.wait(5)
    assert not threading.Event().wait(0.05)
    assert codes == [EXIT_CODE]
    assert "ending because no step for 9 s" in capfd.readouterr().err
