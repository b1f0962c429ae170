"""One step of an engine: planned, run, its output handed out. Knows no threads but the one that runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from types import MappingProxyType

from ferrum.core.processor_loans import LONGEST_STEP_S, ProcessorLoans
from ferrum.core.step import StepPlan
from ferrum.engine.active_requests import ActiveRequests
from ferrum.engine.delivery import PostOffice
from ferrum.engine.engine_news import EngineNews, StepTimes
from ferrum.engine.stall_watch import StallWatch
from ferrum.engine.step_runner import StepOutcome, StepRunner
from ferrum.engine.token_reader import TokenReader
from ferrum.scheduling.scheduler import ContinuousBatchScheduler
from ferrum.scheduling.speculation import Speculation

_NO_DRAFTS: Mapping[str, tuple[int, ...]] = MappingProxyType({})


class EngineStep:
    """Called by the engine's thread, again and again. ``lock`` is held while requests and scheduler change,
    and free while the executor computes and tokens are read.
    """

    def __init__(
        self,
        *,
        lock: AbstractContextManager[object],
        requests: ActiveRequests,
        scheduler: ContinuousBatchScheduler,
        speculation: Speculation | None,
        runner: StepRunner,
        loans: ProcessorLoans,
        news: EngineNews,
        post_office: PostOffice,
        stall_watch: StallWatch,
        clock: Callable[[], float],
    ) -> None:
        self._lock = lock
        self._requests = requests
        self._scheduler = scheduler
        self._speculation = speculation
        self._runner = runner
        self._loans = loans
        self._reader = TokenReader(requests, post_office, news)
        self._news = news
        self._post_office = post_office
        self._stall_watch = stall_watch
        self._clock = clock

    def run(self) -> None:
        started = self._clock()
        plan = self._plan(_NO_DRAFTS if self._speculation is None else self._draft(self._speculation))
        if plan is not None:
            # Those who ended before this step need not wait for it to hear so.
            self._post_office.flush()
            planned = self._clock()
            plan = self._with_loan(plan)
            outcome = self._run(plan)
            ran = self._clock()
            # What it took with fewer processors teaches nothing of the others.
            if outcome.is_whole and not plan.num_lent_processors:
                self._scheduler.learn(plan.parts, ran - planned)
            self._apply(outcome)
            if outcome.parts:
                self._stall_watch.note_step()
            # Before anybody is woken, so that whoever has an answer finds its step counted.
            times = StepTimes(planned - started, ran - planned, self._clock() - ran)
            self._news.step_ran(plan, outcome, times)
        self._post_office.flush()

    def _with_loan(self, plan: StepPlan) -> StepPlan:
        """The plan without the processors that others want, if it is short enough to do without them."""
        num_wanted = self._loans.num_wanted
        if not num_wanted or self._scheduler.predict(plan) > LONGEST_STEP_S:
            return plan
        return replace(plan, num_lent_processors=num_wanted)

    def _run(self, plan: StepPlan) -> StepOutcome:
        self._loans.begin_step(plan.num_lent_processors)
        try:
            return self._runner.run(plan)
        finally:
            self._loans.end_step()

    def _draft(self, speculation: Speculation) -> Mapping[str, tuple[int, ...]]:
        """Tokens to try in the next step. Without the lock: a draft model takes its time."""
        with self._lock:
            wishes = self._scheduler.draft_wishes()
        return speculation.draft(wishes)

    def _plan(self, drafts: Mapping[str, tuple[int, ...]]) -> StepPlan | None:
        with self._lock:
            self._requests.end_due()
            plan = self._scheduler.schedule(drafts)
            if plan is None:
                num_active = self._requests.num_unfinished
                assert not num_active, f"nothing to run although {num_active} requests are active"
                self._news.step_skipped()
                return None
            self._requests.begin_step(plan)
        return plan

    def _apply(self, outcome: StepOutcome) -> None:
        """Brings a step's tokens to their requests, then to scheduler and callers."""
        tokens, endings = self._reader.read(outcome)
        with self._lock:
            self._requests.leave_step()
            self._scheduler.commit(outcome.parts, tokens)
            for request, text, end in endings:
                self._requests.end(request, text, end)
