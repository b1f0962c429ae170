"""The one background thread of an engine: plans a step, runs it, hands out the output, parks when idle."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from ferrum.core.errors import DeadlineExceeded, EngineClosed, EngineStalled, FerrumError, InternalError
from ferrum.core.events import Observers
from ferrum.core.ledger import LifecycleLedger
from ferrum.core.request import FinishReason, InferenceResult
from ferrum.core.scheduler_snapshot import SchedulerSnapshot
from ferrum.core.step import SampledToken, StepPlan
from ferrum.engine.active_request import ActiveRequest
from ferrum.engine.deadlines import Deadlines
from ferrum.engine.delivery import End, Outlet, PostOffice
from ferrum.engine.delta import NOTHING
from ferrum.engine.engine_news import EngineNews, StepTimes
from ferrum.engine.output_processor import OutputUpdate
from ferrum.engine.stall_watch import StallWatch
from ferrum.engine.step_runner import StepOutcome, StepRunner
from ferrum.execution.executor import Executor
from ferrum.scheduling.pinned_prefixes import PinnedPrefixes
from ferrum.scheduling.request_slots import RequestSlots
from ferrum.scheduling.scheduler import ContinuousBatchScheduler
from ferrum.scheduling.speculation import Speculation

_Answer = TypeVar("_Answer")
_Ending = tuple[ActiveRequest, str, FinishReason | FerrumError]
_NO_DRAFTS: Mapping[str, tuple[int, ...]] = MappingProxyType({})
_log = logging.getLogger("ferrum.engine")

# What a cancelled step gets to give up before the thread is left behind, and what a stuck thread's lock gets
# to come free before its callers are told without it.
_GIVE_UP_S, _LOCK_S = 10.0, 1.0


class StepLoop:
    """Owns the active requests. One lock guards them, scheduler and slots; it is free while a step runs.

    The thread starts with the first request and never after ``close`` began. Requests join and leave between
    steps. Every request that was submitted ends exactly once: with a result, or with an error. When there is
    work and no step for ``stall_after_s`` seconds, the callers are told and new ones refused until there is
    one; the requests themselves end when the thread comes back.
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
    ) -> None:
        self._scheduler = scheduler
        self._speculation = speculation
        self._executor = executor
        self._runner = StepRunner(executor, observers)
        self._slots = slots
        self._news = EngineNews(observers, ledger, clock, scheduler.snapshot)
        self._clock = clock
        self._post_office = PostOffice()
        self._work = (
            threading.Condition()
        )  # reentrant: a dropped stream may cancel from the garbage collector
        self._active: dict[str, ActiveRequest] = {}
        # Why they end: their callers left (None), or the engine was stuck.
        self._cancelled: dict[ActiveRequest, FerrumError | None] = {}
        self._deadlines = Deadlines()
        self._stall_watch = StallWatch(stall_after_s, clock, self._give_up)
        self._in_step: tuple[ActiveRequest, ...] = ()
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
        # Before the lock: a fork may have copied it locked, and the threads behind it are not in the copy.
        if self.is_forked_copy:
            raise EngineClosed(
                "was copied by fork, without its threads; load the model in the new process, "
                "or start that process by spawn"
            )
        with self._locked():
            self._require_open()
            self._slots.open(request_id)

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
            submitted: list[ActiveRequest] = []
            try:
                for request in requests:
                    self._scheduler.submit(request.spec, self._slots.retry_after_s)
                    submitted.append(request)
            except FerrumError:
                for request in submitted:
                    self._scheduler.finish(request.request_id)
                raise
            for request in requests:
                self._slots.admit(request.request_id)
                self._active[request.request_id] = request
                self._deadlines.add(request)
                self._news.request_queued(request)
            self._stall_watch.begin()
            self._ensure_thread()
            self._work.notify_all()

    def snapshot(self) -> SchedulerSnapshot:
        """What the scheduler holds between two steps' planning. Raises EngineStalled."""
        with self._locked():
            return self._scheduler.snapshot()

    def with_pins(self, act: Callable[[PinnedPrefixes], _Answer]) -> _Answer:
        """What ``act`` says of, or does to, the pinned prefixes between two steps' planning."""
        with self._work:
            return act(self._scheduler.pins)

    def cancel(self, request: ActiveRequest) -> None:
        """Ends a request at the next border between steps; one that has ended already is left alone.

        A running step is given up only when nobody else would lose by it.
        """
        try:
            with self._locked():
                if self._active.get(request.request_id) is not request:
                    return
                self._cancelled.setdefault(request, None)
                if self._in_step and self._cancelled.keys() >= set(self._in_step):
                    self._executor.abort()
                self._work.notify_all()
        except EngineStalled:
            pass  # It was told already that it ends as soon as anything does.

    def cancel_outlet(self, outlet: Outlet) -> None:
        """Cancels the request whose output goes to ``outlet``, if it still runs."""
        with self._work:
            for request in tuple(self._active.values()):
                if request.outlet is outlet:
                    self.cancel(request)

    def update_priority(self, request_id: str, priority: int) -> bool:
        """False for a request that is not active. Raises InvalidRequest where nobody looks at priorities."""
        with self._locked():
            found = self._find(request_id)
            for request in found:
                self._scheduler.update_priority(request.request_id, priority)
            return bool(found)

    def cancel_all_of(self, request_id: str) -> bool:
        """Cancels all answers of a request that are active. False: there is none."""
        found = self._find(request_id)
        for request in found:
            self.cancel(request)
        return bool(found)

    def _find(self, request_id: str) -> list[ActiveRequest]:
        active = self._active.get(request_id)
        if active is not None and not active.group:
            return [active]
        return [each for each in tuple(self._active.values()) if each.handle_id == request_id]

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

    def _give_up(self, seconds: float) -> None:
        """Tells every caller that the engine is stuck. Called by the watch; the thread may come back."""
        error = EngineStalled(seconds)
        has_lock = self._work.acquire(timeout=_LOCK_S)
        try:
            requests = tuple(self._active.values())
            self._cancelled.update(dict.fromkeys(requests, error))
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
            for request in tuple(self._active.values()):
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
            self._thread = threading.Thread(target=self._run, name="ferrum-engine", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                try:
                    self._step()
                except Exception as error:
                    _log.exception("the engine failed between steps; every active request is failed")
                    self._fail_all(InternalError(f"the engine failed between steps: {error!r}"))
        except BaseException as error:
            self._die(error)

    def _wait_for_work(self) -> bool:
        """Parks until there is something to do; False when the engine is closing and all is done."""
        with self._work:
            while not (self._active or self._cancelled):
                if self._is_closing:
                    return False
                self._work.wait()
            return True

    def _step(self) -> None:
        started = self._clock()
        plan = self._plan(self._draft())
        if plan is not None:
            # Those who ended before this step need not wait for it to hear so.
            self._post_office.flush()
            planned = self._clock()
            outcome = self._runner.run(plan)
            ran = self._clock()
            if outcome.is_whole:
                self._scheduler.learn(plan.parts, ran - planned)
            self._apply(outcome)
            if outcome.parts:
                self._stall_watch.note_step()
            # Before anybody is woken, so that whoever has an answer finds its step counted.
            times = StepTimes(planned - started, ran - planned, self._clock() - ran)
            self._news.step_ran(plan, outcome, times)
        self._post_office.flush()

    def _draft(self) -> Mapping[str, tuple[int, ...]]:
        """Tokens to try in the next step. Without the lock: a draft model takes its time."""
        if self._speculation is None:
            return _NO_DRAFTS
        with self._work:
            wishes = self._scheduler.draft_wishes()
        return self._speculation.draft(wishes)

    def _plan(self, drafts: Mapping[str, tuple[int, ...]]) -> StepPlan | None:
        with self._work:
            self._end_cancelled()
            self._end_expired()
            plan = self._scheduler.schedule(drafts)
            if plan is None:
                assert not self._active, f"nothing to run although {len(self._active)} requests are active"
                self._news.step_skipped()
                return None
            self._in_step = tuple(self._active[part.request_id] for part in plan.parts)
        return plan

    def _end_cancelled(self) -> None:
        cancelled, self._cancelled = self._cancelled, {}
        for request, error in cancelled.items():
            if self._active.get(request.request_id) is request:
                text = request.output.flush()
                self._end(request, text, error or self._result(request, FinishReason.CANCELLED))

    def _end_expired(self) -> None:
        """The one place where time runs out: for those that wait, before any work is done for them."""
        for request in self._deadlines.take_expired(self._clock()):
            if request.has_tokens:
                text = request.output.flush()
                self._end(request, text, self._result(request, FinishReason.TIMEOUT))
            else:
                assert request.timeout_s is not None
                self._end(request, "", DeadlineExceeded(request.request_id, request.timeout_s))

    def _apply(self, outcome: StepOutcome) -> None:
        """Brings a step's tokens to their requests, then to scheduler and callers."""
        tokens, endings = self._read_tokens(outcome)
        with self._work:
            self._in_step = ()
            self._scheduler.commit(outcome.parts, tokens)
            for request, text, end in endings:
                self._end(request, text, self._result(request, end) if isinstance(end, FinishReason) else end)

    def _read_tokens(self, outcome: StepOutcome) -> tuple[list[SampledToken], list[_Ending]]:
        """The tokens that belong to answers, and the answers that end."""
        endings: list[_Ending] = [
            (self._active[request_id], "", error) for request_id, error in outcome.failures.items()
        ]
        for scored in outcome.scored:
            self._active[scored.request_id].output.accept_prompt(scored)
        tokens: list[SampledToken] = []
        ended: set[str] = set()
        for token in outcome.tokens:
            # An answer may end in the middle of drafted tokens that were right.
            if token.request_id in ended:
                continue
            tokens.append(token)
            request = self._active[token.request_id]
            if self._read(request, partial(request.output.accept, token), endings):
                ended.add(request.request_id)
        for request_id in dict.fromkeys(token.request_id for token in tokens):
            request = self._active[request_id]
            if request.spec.most_forced and request_id not in ended:
                self._read(request, request.output.follow, endings)
        self._news.tokens_chosen(self._active[token.request_id] for token in tokens)
        return tokens, endings

    def _read(self, request: ActiveRequest, read: Callable[[], OutputUpdate], endings: list[_Ending]) -> bool:
        """Posts what ``read`` makes of a request's new tokens; True when the answer ends with them."""
        try:
            update = read()
        except FerrumError as error:
            endings.append((request, "", error))
            return True
        except Exception as error:
            _log.exception("reading a token of %s failed", request.request_id)
            endings.append((request, "", InternalError(f"a token has no text: {error!r}")))
            return True
        if update.finish_reason is not None:
            endings.append((request, update.text, update.finish_reason))
            return True
        if update.text and request.outlet.shows_text:
            self._post_office.post(request.outlet, request.output.delta(update.text), None)
        return False

    def _result(self, request: ActiveRequest, reason: FinishReason) -> InferenceResult:
        request_id = request.request_id
        return request.output.result(
            reason, self._scheduler.cache_use(request_id), self._scheduler.draft_use(request_id)
        )

    def _end(self, request: ActiveRequest, text: str, end: End) -> None:
        """Returns what the request held, then answers. Called with the lock held."""
        del self._active[request.request_id]
        self._deadlines.discard(request)
        if self._active:
            self._stall_watch.note_step()
        else:
            self._stall_watch.rest()
        try:
            self._scheduler.finish(request.request_id)
            self._slots.release(request.request_id)
            self._news.account_closed(request.request_id)
        finally:
            # Whatever is wrong with our books, nobody may wait for an answer that will not come.
            self._news.request_ended(request, end)
            delta = NOTHING if isinstance(end, FerrumError) else request.output.delta(text)
            self._post_office.post(request.outlet, delta, end)
            self._news.request_recorded(request, end)

    def _fail_all(self, error: FerrumError) -> None:
        with self._work:
            self._in_step = ()
            for request in tuple(self._active.values()):
                self._end(request, "", error)
        self._post_office.flush()

    def _die(self, error: BaseException) -> None:
        """The last act of a thread that cannot go on: nobody may wait for an answer that will not come."""
        _log.critical("the engine's thread dies", exc_info=error)
        answer = InternalError(f"the engine's thread died: {error!r}")
        with self._work:
            self._death_reason = repr(error)
            requests = tuple(self._active.values())
            for request in requests:
                try:
                    self._end(request, "", answer)
                except Exception:
                    _log.exception("%s could not be ended in order", request.request_id)
                    self._post_office.post(request.outlet, NOTHING, answer)
        self._stall_watch.close()
        self._post_office.flush()
        self._news.engine_failed(str(answer), len(requests))
