"""How a thread lets others go first."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

# A tenth of a busy processor remains: enough to get on, too little to stall a step.
_NICENESS = 10


def give_way() -> None:
    """Lowers the calling thread's priority, where the system has one for each thread (Linux)."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
