"""RequestIntake: from a caller's request to answers that are being written, or to a refusal."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import ExitStack, contextmanager

from ferrum.core.config import SchedulerConfig
from ferrum.core.errors import FerrumError, InvalidRequest, QueueFull
from ferrum.core.events import Observers, RequestRejected, RequestSubmitted
from ferrum.core.request import InferenceRequest, InferenceResult
from ferrum.engine.active_request import ActiveRequest
from ferrum.engine.answer_constraints import AnswerConstraints
from ferrum.engine.answer_maker import AnswerMaker
from ferrum.engine.answers import answer_ids
from ferrum.engine.delivery import Outlet, ThreadOutlet
from ferrum.engine.input_processor import InputProcessor
from ferrum.engine.step_loop import StepLoop
from ferrum.scheduling.sequence import SequenceSpec

# When the queue is full of other callers' requests, whoever waits for room looks again this often.
_RETRY_S = 0.05

Started = tuple[list[ActiveRequest], list[ThreadOutlet]]
"""The answers of one request, and where their ends come out."""


class RequestIntake:
    """Checks requests, takes places for their answers and submits them. Any thread and loop may use it.

    Every way raises InvalidRequest (and its kinds), QueueFull or EngineClosed for a request that is not
    taken, and keeps no place for it. Prompts of asyncio callers are encoded by ``workers``.
    """

    def __init__(
        self,
        *,
        config: SchedulerConfig,
        inputs: InputProcessor,
        constraints: AnswerConstraints,
        answers: AnswerMaker,
        steps: StepLoop,
        workers: Executor,
        observers: Observers,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._inputs = inputs
        self._constraints = constraints
        self._answers = answers
        self._steps = steps
        self._workers = workers
        self._observers = observers
        self._clock = clock

    @property
    def request_capacity(self) -> int:
        """Most answers that can run and wait at once."""
        return self._config.max_running_requests + self._config.max_waiting_requests

    def require_room(self) -> None:
        """Refuses a request that nobody has read yet. Raises QueueFull, EngineClosed or EngineStalled."""
        try:
            self._steps.require_room()
        except FerrumError as error:
            request_id = f"unread-{uuid.uuid4().hex}"
            self._observers.on(RequestSubmitted(request_id))
            self._observers.on(RequestRejected(request_id, type(error).__name__))
            raise

    def check(self, request: InferenceRequest) -> SequenceSpec:
        """What is to be computed for a request; encodes and compiles on this thread."""
        return self._constraints.apply(request, self._inputs.prepare(request))

    async def accept(self, request: InferenceRequest, outlets: Sequence[Outlet]) -> list[ActiveRequest]:
        """Submits a request, one answer for each outlet."""
        submitted_at = self._clock()
        loop = asyncio.get_running_loop()
        ids = answer_ids(request.request_id, len(outlets))
        with self._counted(ids), self._places(request, ids):
            spec = await loop.run_in_executor(self._workers, self._inputs.prepare, request)
            spec = await self._constraints.apply_beside(request, spec)
            return self._submit(request, spec, outlets, submitted_at)

    def start_when_there_is_room(
        self, request: InferenceRequest, spec: SequenceSpec, started: Sequence[Started]
    ) -> Started:
        """Submits a request that was checked; while the queue is full it waits for one of ``started``."""
        outlets = [ThreadOutlet() for _ in range(request.sampling.num_answers)]
        ids = answer_ids(request.request_id, len(outlets))
        with self._counted(ids):
            while True:
                try:
                    with self._places(request, ids):
                        return self._submit(request, spec, outlets, self._clock()), outlets
                except QueueFull:
                    _wait_for_one([outlet.future for _, others in started for outlet in others])

    @contextmanager
    def _counted(self, request_ids: Sequence[str]) -> Iterator[None]:
        """Tells the observers that requests came, and when they are refused."""
        for request_id in request_ids:
            self._observers.on(RequestSubmitted(request_id))
        try:
            yield
        except FerrumError as error:
            for request_id in request_ids:
                self._observers.on(RequestRejected(request_id, type(error).__name__))
            raise

    @contextmanager
    def _places(self, request: InferenceRequest, request_ids: Sequence[str]) -> Iterator[None]:
        """Places for the answers while the request is checked; given back when it is refused or its caller
        leaves.
        """
        if len(request_ids) > self.request_capacity:
            raise InvalidRequest(
                f"must be at most {self.request_capacity}: no more can run and wait", _count_name(request)
            )
        with ExitStack() as opened:
            for request_id in request_ids:
                self._steps.open(request_id)
                opened.callback(self._steps.reject, request_id)
            yield
            opened.pop_all()

    def _submit(
        self, request: InferenceRequest, spec: SequenceSpec, outlets: Sequence[Outlet], submitted_at: float
    ) -> list[ActiveRequest]:
        num_tokens, most = len(outlets) * len(spec.prompt_ids), self._config.max_waiting_tokens
        if len(outlets) > 1 and num_tokens > most:
            raise InvalidRequest(
                f"{len(outlets)} answers to a prompt of {len(spec.prompt_ids)} tokens are more than may wait "
                f"({most} tokens); ask for fewer",
                _count_name(request),
            )
        answers = self._answers.make(request, spec, outlets, submitted_at)
        self._steps.submit(answers)
        return answers


def _count_name(request: InferenceRequest) -> str:
    """The parameter that says how many answers are written."""
    return "n" if request.sampling.best_of is None else "best_of"


def _wait_for_one(futures: Sequence[Future[InferenceResult]]) -> None:
    """Until one of them that still runs is done, or long enough to look at the queue again."""
    running = [future for future in futures if not future.done()]
    if running:
        wait(running, timeout=_RETRY_S, return_when=FIRST_COMPLETED)
    else:
        time.sleep(_RETRY_S)
