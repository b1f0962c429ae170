"""Pauses Python's cyclic collector while a great many objects are made that will stay.

Half a million tuples of a vocabulary, or the classes of a hundred modules, set off full collections that walk
all of them again and again and find nothing: a third of the time to load a tokenizer.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pauses may lie within each other; the outermost one ends them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
