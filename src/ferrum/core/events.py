"""What happens in the engine, as values, and who may watch.

The engine owns no counters and writes no files: it tells its observers. Events are few and always told;
details (core/details.py) are many and told only to those who want them. Those of every step are tuples, which
are made in a third of the time. Times are seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from ferrum.core.details import Detail
from ferrum.core.request import FinishReason

_log = logging.getLogger("ferrum.events")


@dataclass(frozen=True, slots=True)
class StartUpPrepared:
    """The executor proved that a step works; the engine may be handed out. Exactly one for each engine."""

    duration_s: float


@dataclass(frozen=True, slots=True)
class RequestSubmitted:
    """A request reached the engine; nothing about it has been checked yet."""

    request_id: str


@dataclass(frozen=True, slots=True)
class RequestRejected:
    """A request was refused before it could wait; ``error`` is the name of the exception's type."""

    request_id: str
    error: str


@dataclass(frozen=True, slots=True)
class RequestQueued:
    """A request passed every check and waits for its turn."""

    request_id: str
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class RequestAdmitted:
    """A waiting request (new, or preempted before) joined the running ones.

    ``recompute_tokens`` had been computed when it was preempted, and are no longer in the cache.
    """

    request_id: str
    waited_s: float
    recompute_tokens: int = 0


@dataclass(frozen=True, slots=True)
class RequestPreempted:
    """A running request gave its blocks back and waits again; of ``recompute_tokens`` the cache keeps what it
    can."""

    request_id: str
    recompute_tokens: int


class StepRan(NamedTuple):
    """One step: how long it took to write the plan, to run it, and to read what came out."""

    schedule_s: float
    execute_s: float
    publish_s: float
    num_tokens: int
    num_sequences: int
    num_prefill_tokens: int


@dataclass(frozen=True, slots=True)
class StepFailed:
    """A step raised; its requests were tried again one by one, and ``num_failed`` of them failed alone."""

    error: str
    num_sequences: int
    num_failed: int


@dataclass(frozen=True, slots=True)
class FirstToken:
    """The first token of a request was chosen, ``ttft_s`` after the request was submitted."""

    request_id: str
    ttft_s: float


class TokensEmitted(NamedTuple):
    """The later tokens that one step chose: for each request, and how long after the one before it."""

    request_ids: tuple[str, ...]
    gaps_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TokensDrafted:
    """What became of the tokens that were drafted for one step: all of them, and those that were right."""

    num_drafted: int
    num_accepted: int


@dataclass(frozen=True, slots=True)
class RequestFinished:
    """A queued request ended, for whatever reason. Exactly one for each RequestQueued."""

    request_id: str
    reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class EngineFailed:
    """The engine makes no steps any more although there is work; its ``num_requests`` callers were told.

    It may still recover from a step that took too long, but not from the death of its thread.
    """

    reason: str
    num_requests: int


@dataclass(frozen=True, slots=True)
class OutstandingAtClose:
    """Our bug, a resource leak: a request ended and still held these units of these resources."""

    request_id: str
    outstanding: dict[str, int]


Event = (
    StartUpPrepared
    | RequestSubmitted
    | RequestRejected
    | RequestQueued
    | RequestAdmitted
    | RequestPreempted
    | StepRan
    | StepFailed
    | FirstToken
    | TokensEmitted
    | TokensDrafted
    | RequestFinished
    | EngineFailed
    | OutstandingAtClose
)


class Observer(Protocol):
    """Watches. Called where the thing happened, on any thread, sometimes under a lock: must be quick."""

    def on(self, event: Event) -> None: ...


@runtime_checkable
class DetailObserver(Observer, Protocol):
    """An observer that also wants what is costly to build, and to know when no more will come."""

    def on_detail(self, detail: Detail) -> None: ...

    def close(self) -> None: ...


class Observers:
    """Tells every observer; one that raises is logged and left out from then on, so it cannot hurt.

    ``wants_details``: somebody takes details; while nobody does, whoever could build one leaves it.
    """

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers = tuple(observers)
        self._detailed = tuple(each for each in self._observers if isinstance(each, DetailObserver))
        self.wants_details = bool(self._detailed)

    def on(self, event: Event) -> None:
        for observer in self._observers:
            try:
                observer.on(event)
            except Exception:
                self._leave_out(observer, event)

    def on_detail(self, detail: Detail) -> None:
        for observer in self._detailed:
            try:
                observer.on_detail(detail)
            except Exception:
                self._leave_out(observer, detail)

    def close(self) -> None:
        """Nothing more will come: those who write finish what they have, in the order they were given."""
        self.wants_details = False
        detailed, self._detailed = self._detailed, ()
        for observer in detailed:
            try:
                observer.close()
            except Exception:
                _log.exception("observer %r failed when it was closed", observer)

    def _leave_out(self, observer: Observer, event: Event | Detail) -> None:
        _log.exception("observer %r failed on %r and is left out from now on", observer, type(event).__name__)
        self._observers = tuple(other for other in self._observers if other is not observer)
        self._detailed = tuple(other for other in self._detailed if other is not observer)
        self.wants_details = bool(self._detailed)
