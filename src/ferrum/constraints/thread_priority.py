"""How a thread lets others go first."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

# The lowest there is but Linux' SCHED_IDLE, beside which other threads of ours were seen to wait for 50 ms.
_NICENESS = 19


def give_way() -> None:
    """Lowers the calling thread's priority, where the system has one for each thread (Linux)."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
