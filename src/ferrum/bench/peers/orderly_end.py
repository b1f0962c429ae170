"""SIGTERM as an exception, so that peers' processes do not outlive a comparison that is ended."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


@contextmanager
def orderly_end() -> Iterator[None]:
    """Within it SIGTERM raises SystemExit with a shell's status for it. For the main thread."""
    before = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
