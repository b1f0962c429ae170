"""Ctrl-C stops the answer, not the program."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupts:
    """Owns SIGINT while entered. A signal cancels the task of ``cancelling``, also a task still to come.

    The second half closes a race: Ctrl-C between the end of typing and the start of the answer counts.
    Mutated by the signal handler, which Python runs on the main thread.
    """

    def __init__(self) -> None:
        self._is_pending = False
        self._task: asyncio.Task[Any] | None = None
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    @property
    def is_pending(self) -> bool:
        """Whether a signal has come since ``forget``."""
        return self._is_pending

    def forget(self) -> None:
        self._is_pending = False

    @contextmanager
    def cancelling(self, task: asyncio.Task[Any]) -> Iterator[None]:
        """Inside, a signal cancels ``task``; a pending one does so at once."""
        self._task = task
        if self._is_pending:
            task.cancel()
        try:
            yield
        finally:
            self._task = None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._is_pending = True
        if self._task is not None:
            # The loop may be asleep; cancel() alone would not wake it.
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)
