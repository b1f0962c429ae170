"""Waiting for a machine whose processor times a test writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrum.bench.quiet_machine import LIMIT_S, wait_until_quiet


class Machine:
    """Two processors, of which ``busy_for_s`` seconds long one computes."""

    def __init__(self, root: Path, busy_for_s: float) -> None:
        self._stat = root / "proc/stat"
        self._stat.parent.mkdir()
        self._busy_for_s = busy_for_s
        self.now = 0.0
        self._write()

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self._write()

    def _write(self) -> None:
        ticks, busy = round(self.now * 200), round(min(self.now, self._busy_for_s) * 100)
        idle = ticks - busy
        self._stat.write_text(f"cpu  {busy} 0 0 {idle // 2} {idle - idle // 2} 0 0 0 {busy} 0\ncpu0 1 2\n")


@pytest.mark.parametrize("busy_for_s", [0.0, 0.7])
def test_it_returns_as_soon_as_nobody_computes(tmp_path: Path, busy_for_s: float) -> None:
    machine = Machine(tmp_path, busy_for_s)
    assert wait_until_quiet(tmp_path, machine.clock, machine.sleep)
    assert busy_for_s <= machine.now <= busy_for_s + 0.25


def test_a_machine_that_is_never_quiet_does_not_hold_it_up(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1e9)
    assert not wait_until_quiet(tmp_path, machine.clock, machine.sleep)
    assert LIMIT_S <= machine.now <= LIMIT_S + 0.2


def test_a_system_that_does_not_count_is_not_waited_for(tmp_path: Path) -> None:
    slept: list[float] = []
    assert not wait_until_quiet(tmp_path, lambda: 0.0, slept.append)
    assert len(slept) == 1
