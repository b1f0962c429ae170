"""Waiting until nobody computes: engines' threads spin for a while after their work, and slow the next."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

WINDOW_S = 0.1
LIMIT_S = 5.0
# The kernel counts in hundredths of a second, and something small always runs.
QUIET_SHARE = 0.1


def wait_until_quiet(
    root: Path = Path("/"),
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """True once the processors were idle for a tenth of a second; False after five seconds without.

    Source of the counts: proc_stat(5). Where there are none it waits a tenth of a second, and says False.
    """
    deadline = clock() + LIMIT_S
    before = _processor_times(root)
    while clock() < deadline:
        sleep(WINDOW_S)
        now = _processor_times(root)
        if before is None or now is None:
            return False
        busy, whole = now[0] - before[0], now[1] - before[1]
        if busy <= QUIET_SHARE * whole:
            return True
        before = now
    return False


def _processor_times(root: Path) -> tuple[int, int] | None:
    """Busy and whole time of all processors since the machine's start."""
    try:
        first = (root / "proc/stat").read_text().partition("\n")[0].split()
    except OSError:
        return None
    # user, nice, system, idle, iowait, irq, softirq, steal; guests are part of user.
    times = [int(value) for value in first[1:9]]
    whole = sum(times)
    return whole - times[3] - times[4], whole
