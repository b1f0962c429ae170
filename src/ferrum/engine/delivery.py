"""Brings what a step produced to those who wait for it, on whichever thread they wait.

Callers of an asyncio loop get one wake-up per step and loop, however many answers the step moved. What a loop
has not fetched yet is joined, so a loop that is busy never costs memory without end, and never blocks the
engine.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from typing import Protocol

from ferrum.core.errors import FerrumError
from ferrum.core.request import InferenceResult
from ferrum.engine.delta import NOTHING, Delta

End = InferenceResult | FerrumError

Letter = tuple["Outlet", Delta, End | None]
"""What one request gets: more of its answer, and the end when it has come."""


class Outlet(Protocol):
    """Where one request's output goes. ``mailbox`` is None when any thread may call ``deliver``.

    ``shows_text``: text is wanted as it comes; otherwise only the end is, and the caller is left asleep.
    """

    @property
    def mailbox(self) -> LoopMailbox | None: ...
    @property
    def shows_text(self) -> bool: ...

    def deliver(self, delta: Delta, end: End | None) -> None:
        """Takes more of the answer, and its end if it has come. Called on the loop of a mailbox if any."""
        ...


class LoopMailbox:
    """What waits to be delivered on one asyncio loop: the engine's thread fills it, the loop empties it.

    What comes after an end is dropped: a caller who was told that the engine is stuck hears no more of it.
    ``on_delivery`` is called on the loop's thread each time before it delivers.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_loop_lost: Callable[[Outlet], None],
        on_delivery: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = loop
        self._on_loop_lost = on_loop_lost
        self._on_delivery = on_delivery
        self._lock = threading.Lock()
        self._pending: dict[Outlet, tuple[Delta, End | None]] = {}
        self._is_woken = False

    def put(self, letters: Iterable[Letter]) -> None:
        """Takes what a step produced and asks the loop to deliver, unless it was asked and has not come."""
        with self._lock:
            for outlet, delta, end in letters:
                earlier, earlier_end = self._pending.get(outlet, (NOTHING, None))
                if earlier_end is None:
                    self._pending[outlet] = (earlier + delta, end)
            if self._is_woken:
                return
            self._is_woken = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # The loop is closed: nobody will ever read these.
            for outlet in self._take():
                self._on_loop_lost(outlet)

    def _deliver(self) -> None:
        self._on_delivery()
        for outlet, (delta, end) in self._take().items():
            outlet.deliver(delta, end)

    def _take(self) -> dict[Outlet, tuple[Delta, End | None]]:
        with self._lock:
            pending, self._pending = self._pending, {}
            self._is_woken = False
        return pending


class PostOffice:
    """Collects what a step produced and wakes each mailbox once. Used by the engine's thread only."""

    def __init__(self) -> None:
        self._collected: dict[LoopMailbox, list[Letter]] = {}

    def post(self, outlet: Outlet, delta: Delta, end: End | None) -> None:
        mailbox = outlet.mailbox
        if mailbox is None:
            outlet.deliver(delta, end)
        else:
            self._collected.setdefault(mailbox, []).append((outlet, delta, end))

    def flush(self) -> None:
        collected, self._collected = self._collected, {}
        for mailbox, letters in collected.items():
            mailbox.put(letters)


class ThreadOutlet:
    """The end of one request as a future that any thread can wait for."""

    shows_text = False

    def __init__(self) -> None:
        self.future: Future[InferenceResult] = Future()

    @property
    def mailbox(self) -> LoopMailbox | None:
        return None

    def deliver(self, delta: Delta, end: End | None) -> None:
        try:
            if isinstance(end, InferenceResult):
                self.future.set_result(end)
            elif end is not None:
                self.future.set_exception(end)
        except InvalidStateError:
            pass  # The caller cancelled the future.


class TaskOutlet:
    """The end of one request as a future of an asyncio loop."""

    shows_text = False

    def __init__(self, loop: asyncio.AbstractEventLoop, mailbox: LoopMailbox) -> None:
        self.future: asyncio.Future[InferenceResult] = loop.create_future()
        self._mailbox = mailbox

    @property
    def mailbox(self) -> LoopMailbox | None:
        return self._mailbox

    def deliver(self, delta: Delta, end: End | None) -> None:
        if self.future.done():
            return
        if isinstance(end, InferenceResult):
            self.future.set_result(end)
        elif end is not None:
            self.future.set_exception(end)
