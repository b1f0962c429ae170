"""ExitOnStall: a process that cannot serve any more ends, so that whoever runs it starts it anew."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from ferrum.cli.streams import say
from ferrum.core.events import EngineFailed, Event

# EX_SOFTWARE of sysexits.h.
EXIT_CODE = 70

# Time for the last events of open streams to reach their clients.
_FLUSH_S = 2.0


class ExitOnStall:
    """An observer. The engine's thread may be stuck where nothing unwinds, so the process ends as it is."""

    def __init__(self, end: Callable[[int], object] = os._exit, flush_s: float = _FLUSH_S) -> None:
        self._end = end
        self._flush_s = flush_s
        self._timer: threading.Timer | None = None

    def on(self, event: Event) -> None:
        if isinstance(event, EngineFailed) and self._timer is None:
            say(f"ending because {event.reason}")
            self._timer = threading.Timer(self._flush_s, self._end, [EXIT_CODE])
            self._timer.daemon = True
            self._timer.start()
