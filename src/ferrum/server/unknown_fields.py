"""UnknownFieldLog: says once per field that it is being ignored."""

from __future__ import annotations

import logging
from collections.abc import Iterable

log = logging.getLogger("ferrum.server")

# Field names come from clients; without a bound they could fill memory and the log.
MAX_REMEMBERED = 256
MAX_NAME_LENGTH = 64


class UnknownFieldLog:
    """Remembers the names it has logged. Called from the event loop only."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def note(self, names: Iterable[str]) -> None:
        for name in names:
            short = name[:MAX_NAME_LENGTH]
            if short not in self._seen and len(self._seen) < MAX_REMEMBERED:
                self._seen.add(short)
                log.info("request field %r is unknown and ignored (said once)", short)
