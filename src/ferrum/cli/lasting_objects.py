"""What a command makes while it starts stays as long as the process: the collector need not know it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from ferrum.core.collector_pause import collector_paused


@contextmanager
def lasting_objects() -> Iterator[None]:
    """No collection runs inside, and none ever walks what was made before its end.

    For commands alone: frozen garbage stays, so a library must not do this to its caller's objects.
    """
    with collector_paused():
        yield
        gc.freeze()
