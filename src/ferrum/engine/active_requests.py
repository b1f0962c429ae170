"""The requests that were submitted and have not ended. Knows nothing of threads: the step loop locks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from ferrum.core.errors import DeadlineExceeded, FerrumError
from ferrum.core.request import FinishReason, InferenceResult
from ferrum.core.step import StepPlan
from ferrum.engine.active_request import ActiveRequest
from ferrum.engine.awaited_looks import AwaitedAnswer, AwaitedLooks
from ferrum.engine.deadlines import Deadlines
from ferrum.engine.delivery import PostOffice
from ferrum.engine.delta import NOTHING
from ferrum.engine.engine_news import EngineNews
from ferrum.engine.stall_watch import StallWatch
from ferrum.scheduling.request_slots import RequestSlots
from ferrum.scheduling.scheduler import ContinuousBatchScheduler


class ActiveRequests:
    """Every request that is submitted ends exactly once: with a result, or with an error.

    Mutated under the engine's lock only; requests join from any thread and end on the engine's own, which may
    therefore look without the lock. An answer that is still looked at holds nothing but its place.
    """

    def __init__(
        self,
        *,
        scheduler: ContinuousBatchScheduler,
        slots: RequestSlots,
        news: EngineNews,
        post_office: PostOffice,
        stall_watch: StallWatch,
        clock: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self._scheduler = scheduler
        self._slots = slots
        self._news = news
        self._post_office = post_office
        self._stall_watch = stall_watch
        self._clock = clock
        self._active: dict[str, ActiveRequest] = {}
        # Why they end: their callers left (None), or the engine was stuck.
        self._cancelled: dict[ActiveRequest, FerrumError | None] = {}
        self._looks = AwaitedLooks(wake)
        self._deadlines = Deadlines()
        self._step: StepPlan | None = None  # that runs just now

    def __len__(self) -> int:
        return len(self._active)

    def __getitem__(self, request_id: str) -> ActiveRequest:
        return self._active[request_id]

    def __contains__(self, request: ActiveRequest) -> bool:
        return self._active.get(request.request_id) is request

    @property
    def num_unfinished(self) -> int:
        """Those that there is something to compute for."""
        return len(self._active) - len(self._looks)

    @property
    def has_work(self) -> bool:
        """Whether there is anything to compute or to end."""
        return bool(self.num_unfinished or self._cancelled or self._looks.is_one_done)

    def all(self) -> tuple[ActiveRequest, ...]:
        return tuple(self._active.values())

    def find(self, request_id: str) -> list[ActiveRequest]:
        """All answers that are written for the caller's request of this id."""
        active = self._active.get(request_id)
        if active is not None and not active.group:
            return [active]
        return [each for each in self.all() if each.handle_id == request_id]

    def submit(self, requests: Sequence[ActiveRequest]) -> None:
        """Hands opened requests to the scheduler, all or none. Raises QueueFull or ResourceExhausted."""
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

    def cancel(self, request: ActiveRequest) -> None:
        """Its caller left: it ends before the next step is planned."""
        self._cancelled.setdefault(request, None)

    def give_up_all(self, error: FerrumError) -> tuple[ActiveRequest, ...]:
        """All of them end with ``error`` as soon as anything does; they are told already."""
        requests = self.all()
        self._cancelled.update(dict.fromkeys(requests, error))
        return requests

    def begin_step(self, plan: StepPlan) -> None:
        self._step = plan

    def leave_step(self) -> None:
        self._step = None

    @property
    def is_step_in_vain(self) -> bool:
        """Whether a step runs for none but callers who left."""
        step = self._step
        return step is not None and self._cancelled.keys() >= {self[part.request_id] for part in step.parts}

    def end_due(self) -> None:
        """Ends those whose callers left, those whose time is over, and those that were looked at."""
        if self._cancelled:
            self._end_cancelled()
        if self._deadlines:
            self._end_expired()
        for request, awaited in self._looks.take_done():
            problem = awaited.look.problem(request.request_id)
            self._answer(request, awaited.text, awaited.result if problem is None else problem)

    def end(self, request: ActiveRequest, text: str, end: FinishReason | FerrumError) -> None:
        """Returns what the request held, then answers: with the last of its ``text``, or with an error.

        One whose answer is to be looked at is answered when that is done (``end_due``).
        """
        awaited = self._looks.take(request)
        if awaited is not None:
            answer = end if isinstance(end, FerrumError) else replace(awaited.result, finish_reason=end)
            self._answer(request, awaited.text, answer)
            return
        if isinstance(end, FerrumError):
            self._answer(request, text, end, self._stop_computing)
            return
        result, look = self._result(request, end), request.output.look
        if look is None or look.found.done():
            problem = None if look is None else look.problem(request.request_id)
            self._answer(request, text, problem or result, self._stop_computing)
            return
        self._stop_computing(request)
        self._looks.add(request, AwaitedAnswer(text, result, look))
        self._note_progress()

    def is_looked_at(self, request: ActiveRequest) -> bool:
        """Whether its answer is written, and only to be looked at."""
        return request in self._looks

    def _answer(
        self,
        request: ActiveRequest,
        text: str,
        answer: InferenceResult | FerrumError,
        *before: Callable[[ActiveRequest], None],
    ) -> None:
        """Gives its place back, after what is to be done ``before``, and tells its caller."""
        del self._active[request.request_id]
        self._note_progress()
        try:
            # In the reverse of this order, each whatever becomes of the others: what cannot be given back is
            # told when the account is closed.
            with ExitStack() as books:
                books.callback(self._news.account_closed, request.request_id)
                books.callback(self._slots.release, request.request_id)
                for act in before:
                    books.callback(act, request)
        finally:
            # Whatever is wrong with our books, nobody may wait for an answer that will not come.
            self._news.request_ended(request, answer)
            delta = NOTHING if isinstance(answer, FerrumError) else request.output.delta(text)
            self._post_office.post(request.outlet, delta, answer)
            self._news.request_recorded(request, answer)

    def _stop_computing(self, request: ActiveRequest) -> None:
        self._deadlines.discard(request)
        self._scheduler.finish(request.request_id)

    def _note_progress(self) -> None:
        if self.num_unfinished:
            self._stall_watch.note_step()
        else:
            self._stall_watch.rest()

    def _end_cancelled(self) -> None:
        cancelled, self._cancelled = self._cancelled, {}
        for request, error in cancelled.items():
            if request in self:
                self.end(request, request.output.flush(), error or FinishReason.CANCELLED)

    def _end_expired(self) -> None:
        """The one place where time runs out: for those that wait, before any work is done for them."""
        for request in self._deadlines.take_expired(self._clock()):
            if request.has_tokens:
                self.end(request, request.output.flush(), FinishReason.TIMEOUT)
            else:
                assert request.timeout_s is not None
                self.end(request, "", DeadlineExceeded(request.request_id, request.timeout_s))

    def _result(self, request: ActiveRequest, reason: FinishReason) -> InferenceResult:
        request_id = request.request_id
        return request.output.result(
            reason, self._scheduler.cache_use(request_id), self._scheduler.draft_use(request_id)
        )
