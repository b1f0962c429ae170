"""Pauses Python's cyclic collector while a great many small objects are made.

Half a million tuples set off full collections that walk all of them again and again: a third of the load
time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
