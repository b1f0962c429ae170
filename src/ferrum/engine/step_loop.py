"""The one background thread of an engine: does step after step, parks when idle; and the lock around it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from ferrum.core.errors import EngineClosed, EngineStalled, FerrumError, InternalError
from ferrum.core.events import Observers
from ferrum.core.ledger import LifecycleLedger
from ferrum.core.processor_loans import ProcessorLoans
from ferrum.core.scheduler_snapshot import SchedulerSnapshot
from ferrum.engine.active_request import ActiveRequest
from ferrum.engine.active_requests import ActiveRequests
from ferrum.engine.delivery import Outlet, PostOffice
from ferrum.engine.delta import NOTHING
from ferrum.engine.engine_news import EngineNews
from ferrum.engine.engine_step import EngineStep
from ferrum.engine.interpreter_turns import shorten_turns
from ferrum.engine.stall_watch import StallWatch
from ferrum.engine.step_runner import StepRunner
from ferrum.execution.executor import Executor
from ferrum.scheduling.pinned_prefixes import PinnedPrefixes
from ferrum.scheduling.request_slots import RequestSlots
from ferrum.scheduling.scheduler import ContinuousBatchScheduler
from ferrum.scheduling.speculation import Speculation

_Answer = TypeVar("_Answer")
_log = logging.getLogger("ferrum.engine")

# What a cancelled step gets to give up before the thread is left behind, and what a stuck thread's lock gets
# to come free before its callers are told without it.
_GIVE_UP_S, _LOCK_S = 10.0, 1.0


class StepLoop:
    """One lock guards the active requests, scheduler and slots; it is free while a step runs.

    The thread starts with the first request and never after ``close`` began. Requests join and leave between
    steps. When there is work and no step for ``stall_after_s`` seconds, the callers are told and new ones
    refused until there is one; the requests themselves end when the thread comes back.
    """

    def __init__(
        self,
        *,
        scheduler: ContinuousBatchScheduler,
        executor: Executor,
        slots: RequestSlots,
        ledger: LifecycleLedger,
        observers: Observers,
        clock: Callable[[], float],
        stall_after_s: float,
        speculation: Speculation | None = None,
        loans: ProcessorLoans | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self._slots = slots
        self._news = EngineNews(observers, ledger, clock, scheduler.snapshot)
        self._post_office = PostOffice()
        # Reentrant: a dropped stream may cancel from the garbage collector.
        lock = threading.RLock()
        self._work = threading.Condition(lock)
        self._stall_watch = StallWatch(stall_after_s, clock, self._give_up)
        self._requests = ActiveRequests(
            scheduler=scheduler,
            slots=slots,
            news=self._news,
            post_office=self._post_office,
            stall_watch=self._stall_watch,
            clock=clock,
            wake=self._wake,
        )
        self._step = EngineStep(
            lock=lock,
            requests=self._requests,
            scheduler=scheduler,
            speculation=speculation,
            runner=StepRunner(executor, observers),
            loans=loans or ProcessorLoans(),
            news=self._news,
            post_office=self._post_office,
            stall_watch=self._stall_watch,
            clock=clock,
        )
        self._thread: threading.Thread | None = None
        self._process_id = os.getpid()
        self._is_closing = False
        self._death_reason: str | None = None
        self._is_left_behind = False

    @property
    def is_forked_copy(self) -> bool:
        """Whether this process got the engine by fork: it can neither run it nor take it apart."""
        return os.getpid() != self._process_id

    @property
    def is_closing(self) -> bool:
        return self._is_closing

    @property
    def is_left_behind(self) -> bool:
        """Whether ``close`` gave up on a thread that still runs."""
        return self._is_left_behind

    @property
    def death_reason(self) -> str | None:
        """Why the thread is gone though nobody closed it, or stuck; None while all is well."""
        if self._death_reason is None and self._stall_watch.is_stalled:
            return str(EngineStalled(self._stall_watch.seconds_without_step))
        return self._death_reason

    def open(self, request_id: str) -> None:
        """Takes a place for a request that is being prepared.

        Raises EngineClosed, EngineStalled, DuplicateRequest or QueueFull.
        """
        with self._locked_and_open():
            self._slots.open(request_id)

    def require_room(self) -> None:
        """Raises what ``open`` would for any request now: EngineClosed, EngineStalled or QueueFull."""
        with self._locked_and_open():
            self._slots.require_room()

    def reject(self, request_id: str) -> None:
        """Gives the place back of a request that was opened and not submitted."""
        with self._locked():
            self._slots.reject(request_id)
        self._news.account_closed(request_id)

    def submit(self, requests: Sequence[ActiveRequest]) -> None:
        """Publishes opened requests to scheduler and thread at once; the thread is woken, or started.

        All of them or none: raises EngineClosed, EngineStalled, QueueFull or ResourceExhausted; the places
        are then still the caller's to reject.
        """
        with self._locked():
            self._require_open()
            self._requests.submit(requests)
            self._ensure_thread()
            self._work.notify_all()

    def snapshot(self) -> SchedulerSnapshot:
        """What the scheduler holds between two steps' planning. Raises EngineStalled."""
        with self._locked():
            return self._scheduler.snapshot()

    def with_pins(self, act: Callable[[PinnedPrefixes], _Answer]) -> _Answer:
        """What ``act`` says of, or does to, the pinned prefixes between two steps' planning.

        Raises EngineStalled.
        """
        with self._locked():
            return act(self._scheduler.pins)

    def cancel(self, request: ActiveRequest) -> None:
        """Ends a request at the next border between steps; one that has ended already is left alone.

        A running step is given up only when nobody else would lose by it.
        """
        try:
            with self._locked():
                if request not in self._requests:
                    return
                self._requests.cancel(request)
                if self._requests.is_step_in_vain:
                    self._executor.abort()
                self._work.notify_all()
        except EngineStalled:
            pass  # It was told already that it ends as soon as anything does.

    def cancel_outlet(self, outlet: Outlet) -> None:
        """Cancels the request whose output goes to ``outlet``, if it still runs."""
        with self._work:
            for request in self._requests.all():
                if request.outlet is outlet:
                    self.cancel(request)

    def update_priority(self, request_id: str, priority: int) -> bool:
        """False for a request that is not active. Raises InvalidRequest where nobody looks at priorities."""
        with self._locked():
            found = self._requests.find(request_id)
            for request in found:
                if not self._requests.is_looked_at(request):
                    self._scheduler.update_priority(request.request_id, priority)
            return bool(found)

    def cancel_all_of(self, request_id: str) -> bool:
        """Cancels all answers of a request that are active. False: there is none."""
        found = self._requests.find(request_id)
        for request in found:
            self.cancel(request)
        return bool(found)

    def close(self, drain_s: float) -> None:
        """Takes no more requests, lets the active ones run ``drain_s`` seconds, then cancels them and ends.

        A second call with a shorter time cuts the first one short.
        """
        with self._work:
            self._is_closing = True
            thread = self._thread
            self._work.notify_all()
        if thread is None or self._is_left_behind:
            return
        if thread is threading.current_thread():
            self._cancel_all()
            return
        thread.join(min(drain_s, threading.TIMEOUT_MAX))
        if thread.is_alive():
            self._cancel_all()
            thread.join(_GIVE_UP_S)
        if thread.is_alive():
            self._leave_behind()
        self._stall_watch.close()

    def _leave_behind(self) -> None:
        """The thread does not come back: the callers are told, and what its step uses must stay."""
        self._is_left_behind = True
        self._death_reason = f"a step did not give up in {_GIVE_UP_S:.0f} s when the engine was closed"
        _log.critical("%s; its memory is kept until the process ends", self._death_reason)
        self._give_up(self._stall_watch.seconds_without_step)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """The lock, for callers on other threads. Raises EngineStalled when the engine does not let it go."""
        while not self._work.acquire(timeout=_LOCK_S):
            if self._stall_watch.is_stalled:
                raise EngineStalled(self._stall_watch.seconds_without_step)
        try:
            yield
        finally:
            self._work.release()

    @contextmanager
    def _locked_and_open(self) -> Iterator[None]:
        """The lock of an engine that takes requests. Raises EngineClosed or EngineStalled."""
        # Before the lock: a fork may have copied it locked, and the threads behind it are not in the copy.
        if self.is_forked_copy:
            raise EngineClosed(
                "was copied by fork, without its threads; load the model in the new process, "
                "or start that process by spawn"
            )
        with self._locked():
            self._require_open()
            yield

    def _give_up(self, seconds: float) -> None:
        """Tells every caller that the engine is stuck. Called by the watch; the thread may come back."""
        error = EngineStalled(seconds)
        has_lock = self._work.acquire(timeout=_LOCK_S)
        try:
            requests = self._requests.give_up_all(error)
            self._executor.abort()
        finally:
            if has_lock:
                self._work.release()
        _log.critical("%s; %d requests are answered with that", error, len(requests))
        self._news.engine_failed(str(error), len(requests))
        post_office = PostOffice()
        for request in requests:
            post_office.post(request.outlet, NOTHING, error)
        post_office.flush()

    def _cancel_all(self) -> None:
        with self._work:
            for request in self._requests.all():
                self.cancel(request)

    def _require_open(self) -> None:
        if self._death_reason is not None:
            raise InternalError(f"the engine's thread is dead: {self._death_reason}")
        if self._is_closing:
            raise EngineClosed
        if self._stall_watch.is_stalled:
            raise EngineStalled(self._stall_watch.seconds_without_step)

    def _ensure_thread(self) -> None:
        if self._thread is None:
            shorten_turns()
            self._thread = threading.Thread(target=self._run, name="ferrum-engine", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                try:
                    self._step.run()
                except Exception as error:
                    _log.exception("the engine failed between steps; every active request is failed")
                    self._fail_all(InternalError(f"the engine failed between steps: {error!r}"))
        except BaseException as error:
            self._die(error)

    def _wait_for_work(self) -> bool:
        """Parks until there is something to do; False when the engine is closing and all is done."""
        with self._work:
            while not self._requests.has_work:
                if self._is_closing and not len(self._requests):
                    return False
                self._work.wait()
            return True

    def _wake(self) -> None:
        """The thread has something to end, if it sleeps."""
        with self._work:
            self._work.notify_all()

    def _fail_all(self, error: FerrumError) -> None:
        with self._work:
            self._requests.leave_step()
            for request in self._requests.all():
                self._requests.end(request, "", error)
        self._post_office.flush()

    def _die(self, error: BaseException) -> None:
        """The last act of a thread that cannot go on: nobody may wait for an answer that will not come."""
        _log.critical("the engine's thread dies", exc_info=error)
        answer = InternalError(f"the engine's thread died: {error!r}")
        with self._work:
            self._death_reason = repr(error)
            requests = self._requests.all()
            for request in requests:
                try:
                    self._requests.end(request, "", answer)
                except Exception:
                    _log.exception("%s could not be ended in order", request.request_id)
                    self._post_office.post(request.outlet, NOTHING, answer)
        self._stall_watch.close()
        self._post_office.flush()
        self._news.engine_failed(str(answer), len(requests))
