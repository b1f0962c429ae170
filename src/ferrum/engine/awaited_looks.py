"""Answers that are written and are being looked at again, elsewhere, before their callers get them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ferrum.core.request import InferenceResult
from ferrum.engine.active_request import ActiveRequest
from ferrum.engine.answer_look import Look


@dataclass(frozen=True, slots=True)
class AwaitedAnswer:
    """``text`` is the last of what may be shown."""

    text: str
    result: InferenceResult
    look: Look


class AwaitedLooks:
    """Mutated under the engine's lock. ``wake``: called on any thread when a look is done."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._awaited: dict[ActiveRequest, AwaitedAnswer] = {}

    def __len__(self) -> int:
        return len(self._awaited)

    def __contains__(self, request: ActiveRequest) -> bool:
        return request in self._awaited

    @property
    def is_one_done(self) -> bool:
        return any(each.look.found.done() for each in self._awaited.values())

    def add(self, request: ActiveRequest, answer: AwaitedAnswer) -> None:
        self._awaited[request] = answer
        answer.look.found.add_done_callback(lambda _: self._wake())

    def take(self, request: ActiveRequest) -> AwaitedAnswer | None:
        """The request's answer, which nobody waits for any more; None: it has none here."""
        return self._awaited.pop(request, None)

    def take_done(self) -> list[tuple[ActiveRequest, AwaitedAnswer]]:
        done = [(request, each) for request, each in self._awaited.items() if each.look.found.done()]
        for request, _ in done:
            del self._awaited[request]
        return done
