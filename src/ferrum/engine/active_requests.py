"""The requests that were submitted and have not ended. Knows nothing of threads: the step loop locks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from ferrum.core.errors import DeadlineExceeded, FerrumError
from ferrum.core.request import FinishReason, InferenceResult
from ferrum.core.step import StepPlan
from ferrum.engine.active_request import ActiveRequest
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
    therefore look without the lock.
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
        self._deadlines = Deadlines()
        self._step: StepPlan | None = None  # that runs just now

    def __len__(self) -> int:
        return len(self._active)

    def __getitem__(self, request_id: str) -> ActiveRequest:
        return self._active[request_id]

    def __contains__(self, request: ActiveRequest) -> bool:
        return self._active.get(request.request_id) is request

    @property
    def has_work(self) -> bool:
        """Whether there is anything to compute or to end."""
        return bool(self._active or self._cancelled)

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
        """Ends those whose callers left and those whose time is over."""
        if self._cancelled:
            self._end_cancelled()
        if self._deadlines:
            self._end_expired()

    def end(self, request: ActiveRequest, text: str, end: FinishReason | FerrumError) -> None:
        """Returns what the request held, then answers: with the last of its ``text``, or with an error."""
        answer = end if isinstance(end, FerrumError) else self._result(request, end)
        del self._active[request.request_id]
        self._deadlines.discard(request)
        if self._active:
            self._stall_watch.note_step()
        else:
            self._stall_watch.rest()
        try:
            # In the reverse of this order, each whatever becomes of the others: what cannot be given back is
            # told when the account is closed.
            with ExitStack() as books:
                books.callback(self._news.account_closed, request.request_id)
                books.callback(self._slots.release, request.request_id)
                books.callback(self._scheduler.finish, request.request_id)
        finally:
            # Whatever is wrong with our books, nobody may wait for an answer that will not come.
            self._news.request_ended(request, answer)
            delta = NOTHING if isinstance(answer, FerrumError) else request.output.delta(text)
            self._post_office.post(request.outlet, delta, answer)
            self._news.request_recorded(request, answer)

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
