"""The engine's doors: one request or many, whole or streamed, from asyncio or from plain threads."""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Protocol
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, generate_latest

from ferrum.constraints.vocabulary_tokenizer import VocabularyTokenizer
from ferrum.core.config import EngineConfig
from ferrum.core.drafting import Drafter
from ferrum.core.errors import InvalidRequest
from ferrum.core.events import Observer, Observers
from ferrum.core.processor_loans import ProcessorLoans
from ferrum.core.request import InferenceRequest, InferenceResult, StreamChunk
from ferrum.engine.active_request import ActiveRequest
from ferrum.engine.answer_constraints import MOST_FORCED, AnswerConstraints
from ferrum.engine.answer_gates import AnswerGates, GateTokenizer
from ferrum.engine.answer_maker import AnswerMaker
from ferrum.engine.answers import join_answers
from ferrum.engine.delivery import LoopMailbox, TaskOutlet
from ferrum.engine.engine_reporter import EngineReporter
from ferrum.engine.engine_resources import EngineResources
from ferrum.engine.input_processor import ChatEncoder, InputProcessor, PromptTokenizer
from ferrum.engine.metrics import EngineMetrics
from ferrum.engine.prefix_pins import PrefixPins
from ferrum.engine.request_intake import RequestIntake, Started
from ferrum.engine.result_stream import Doorbell, ResultStream, StreamChannel
from ferrum.engine.scheduler_maker import SchedulerMaker
from ferrum.engine.snapshots import AdmissionSnapshot, ExecutionAttribution
from ferrum.engine.status import EngineStatus
from ferrum.engine.step_loop import StepLoop
from ferrum.execution.executor import Executor
from ferrum.plan.plan_work import UNIFORM_WORK
from ferrum.sampling.policy_cache import PolicyCache
from ferrum.scheduling.request_slots import RequestSlots
from ferrum.scheduling.scheduler import ContinuousBatchScheduler
from ferrum.scheduling.speculation import Speculation
from ferrum.scheduling.step_pace import StepPace


class EngineTokenizer(PromptTokenizer, GateTokenizer, VocabularyTokenizer, Protocol):
    """What the engine asks of a tokenizer: prompts to ids, ids to text, and what ids stand for."""


class ContinuousBatchEngine:
    """Runs many requests together, each with the same tokens it would get alone.

    Any number of asyncio loops and threads may use one engine. Every door raises InvalidRequest (and its
    kinds), QueueFull or EngineClosed for a request that is not taken. Leaving a door early (a cancelled task,
    a closed or dropped stream) cancels the request within a step. The engine is ready when it is built: the
    builder has run ``executor.prepare_startup``.
    """

    def __init__(
        self,
        *,
        config: EngineConfig,
        tokenizer: EngineTokenizer,
        chat_encoder: ChatEncoder | None,
        executor: Executor,
        resources: EngineResources,
        make_scheduler: SchedulerMaker = ContinuousBatchScheduler,
        observers: Sequence[Observer] = (),
        clock: Callable[[], float] = time.monotonic,
        policies: PolicyCache | None = None,
        drafter: Drafter | None = None,
        loans: ProcessorLoans | None = None,
    ) -> None:
        self._config = config
        self._executor = executor
        resources.require_match(executor)
        cache = resources.cache
        self._resources = resources
        self._cache = cache
        self._metrics = EngineMetrics(self.status)
        self._observers = Observers((self._metrics, *observers))
        if self._observers.wants_details:
            cache.ledger.watch(self._observers.on_detail)
        vocabulary_size = executor.capacity.vocabulary_size
        policy = (policies or PolicyCache()).policy_for(tokenizer, vocabulary_size, config.token_policy)
        self._inputs = InputProcessor(
            tokenizer,
            chat_encoder,
            self._token_capacity(),
            vocabulary_size,
            AnswerGates(tokenizer, policy),
        )
        self._loans = loans = loans or ProcessorLoans()
        self._constraints = AnswerConstraints(
            tokenizer, vocabulary_size, 0 if config.logit_digests else MOST_FORCED, loans
        )
        plan = executor.resolved_plan
        pace = StepPace(plan.work if plan else UNIFORM_WORK)
        self._speculation = self._speculation_with(drafter, pace, clock) if drafter is not None else None
        self._scheduler = make_scheduler(
            config.scheduler,
            cache,
            self._observers,
            clock,
            resources.sequence_states(executor),
            pace,
            self._speculation,
        )
        self._steps = StepLoop(
            scheduler=self._scheduler,
            executor=executor,
            slots=RequestSlots(config.scheduler, cache.ledger, clock),
            ledger=cache.ledger,
            observers=self._observers,
            clock=clock,
            stall_after_s=config.stall_after_s,
            speculation=self._speculation,
            loans=loans,
        )
        self._pins = PrefixPins(
            cache.prefix_cache,
            self._steps,
            self._inputs,
            lambda request: self.generate([request])[0],
            self.infer,
        )
        self._workers = ThreadPoolExecutor(config.tokenizer_threads, thread_name_prefix="ferrum-tokenizer")
        self._intake = RequestIntake(
            config=config.scheduler,
            inputs=self._inputs,
            constraints=self._constraints,
            answers=AnswerMaker(tokenizer),
            steps=self._steps,
            workers=self._workers,
            observers=self._observers,
            clock=clock,
        )
        self._reporter = EngineReporter(
            config=config.scheduler,
            executor=executor,
            resources=resources,
            scheduler=self._scheduler,
            steps=self._steps,
            context_length=self.context_length,
        )
        self._mailboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopMailbox] = WeakKeyDictionary()
        self._closing = threading.Lock()
        atexit.register(self.close, 0.0)

    @property
    def context_length(self) -> int:
        """Most tokens of prompt and output together."""
        return self._inputs.capacity

    @property
    def request_capacity(self) -> int:
        """Most requests that can run and wait at once; more than these can never be taken together."""
        return self._intake.request_capacity

    @property
    def resources(self) -> EngineResources:
        """What the engine manages for its requests; to look at, the engine alone changes it."""
        return self._resources

    @property
    def pins(self) -> PrefixPins:
        """Prefixes that stay in the cache, and can be saved and restored."""
        return self._pins

    @property
    def registry(self) -> CollectorRegistry:
        """The Prometheus registry that holds this engine's metrics and nothing else."""
        return self._metrics.registry

    @property
    def death_reason(self) -> str | None:
        """Why the engine no longer answers (its thread died, it makes no steps); None while it does."""
        return self._steps.death_reason

    def require_room(self) -> None:
        """Refuses, and counts, a request before it is read. Raises QueueFull, EngineClosed, EngineStalled."""
        self._intake.require_room()

    async def infer(self, request: InferenceRequest) -> InferenceResult:
        """Answers one request. Cancelling the awaiting task cancels the request.

        When one of several answers fails, the others are cancelled and the failure is raised.
        """
        loop, mailbox = asyncio.get_running_loop(), self._mailbox()
        outlets = [TaskOutlet(loop, mailbox) for _ in range(request.sampling.num_answers)]
        answers = await self._intake.accept(request, outlets)
        try:
            results = await asyncio.gather(*(outlet.future for outlet in outlets))
            return join_answers(request.sampling, results)
        finally:
            self._cancel(answers)

    async def open_stream(self, request: InferenceRequest) -> ResultStream:
        """Returns once the request is accepted, long before its first token; refusals are raised here."""
        if request.sampling.num_answers > request.sampling.n:
            raise InvalidRequest(
                "cannot be streamed: which answers are the best is known when all have ended", "best_of"
            )
        bell, mailbox = Doorbell(), self._mailbox()
        channels = [
            StreamChannel(mailbox, self._config.stream_buffer_chunks, bell) for _ in range(request.sampling.n)
        ]
        answers = await self._intake.accept(request, channels)
        return ResultStream(channels, bell, on_leave=lambda: self._cancel(answers))

    async def infer_stream(self, request: InferenceRequest) -> AsyncGenerator[StreamChunk, None]:
        """Streams a request; the last chunk of each answer carries its result. Closing it cancels them."""
        async with await self.open_stream(request) as stream:
            async for chunk in stream:
                yield chunk

    def generate(self, requests: Sequence[InferenceRequest]) -> list[InferenceResult]:
        """Answers many requests together, in their order, without asyncio.

        All are checked before the first one runs. More of them than the queue holds are fed in as room comes.
        The first failure cancels the others and is raised.
        """
        specs = [self._intake.check(each) for each in requests]
        started: list[Started] = []
        try:
            for request, spec in zip(requests, specs, strict=True):
                started.append(self._intake.start_when_there_is_room(request, spec, started))
            return [
                join_answers(request.sampling, [outlet.future.result() for outlet in outlets])
                for request, (_, outlets) in zip(requests, started, strict=True)
            ]
        finally:
            for answers, _ in started:
                self._cancel(answers)

    def cancel(self, request_id: str) -> bool:
        """Ends an active request, all of its answers; its caller gets what there is, reason CANCELLED.

        False: not active.
        """
        return self._steps.cancel_all_of(request_id)

    def update_priority(self, request_id: str, priority: int) -> bool:
        """Serves an active request by another priority from now on. False: not active.

        Raises InvalidRequest where the scheduling policy does not look at priorities.
        """
        return self._steps.update_priority(request_id, priority)

    def status(self) -> EngineStatus:
        return self._reporter.status()

    def admission(self) -> AdmissionSnapshot:
        """Raises EngineStalled when the books are locked for long, InternalError when they are wrong."""
        return self._reporter.admission()

    def attribution(self) -> ExecutionAttribution:
        """Whose arithmetic answers."""
        return self._reporter.attribution()

    def warm_up(self) -> None:
        """Prepares, beside, what the first constrained answer needs, so that it need not wait for it."""
        self._constraints.warm_up()

    def metrics(self) -> str:
        """The metrics in Prometheus' text format."""
        return generate_latest(self.registry).decode()

    async def shutdown(self, drain_s: float | None = None) -> None:
        """``close`` for asyncio: the loop goes on delivering while the requests end."""
        await asyncio.to_thread(self.close, drain_s)

    def close(self, drain_s: float | None = None) -> None:
        """Takes no new requests, gives the active ones ``drain_s`` seconds, cancels the rest, frees all.

        ``drain_s`` None means the configured time. Idempotent; a second call with less time cuts the first
        short. A step that does not give up is left behind, with the memory it uses. An error of one part is
        raised when all are closed. A copy made by fork is left alone: what it holds belongs to
        the process that built it.
        """
        if self._steps.is_forked_copy:
            return
        self._steps.close(self._config.shutdown_drain_s if drain_s is None else drain_s)
        atexit.unregister(self.close)
        with self._closing, ExitStack() as parts:
            # In the reverse of this order, each whatever becomes of the others.
            parts.callback(self._observers.close)
            if not self._steps.is_left_behind:
                parts.callback(self._executor.close)
                if self._speculation is not None:
                    parts.callback(self._speculation.close)
                parts.callback(self._pins.close)
            parts.callback(self._workers.shutdown)
            parts.callback(self._constraints.close)

    def _cancel(self, answers: Sequence[ActiveRequest]) -> None:
        for answer in answers:
            self._steps.cancel(answer)

    def _mailbox(self) -> LoopMailbox:
        loop = asyncio.get_running_loop()
        self._loans.add_messenger(threading.get_native_id())
        # Threads that are started for a request may run for ever where this one may now.
        self._loans.messenger_came()
        return self._mailboxes.setdefault(
            loop, LoopMailbox(loop, self._steps.cancel_outlet, self._loans.messenger_came)
        )

    def _speculation_with(self, drafter: Drafter, pace: StepPace, clock: Callable[[], float]) -> Speculation:
        speculation = self._config.speculation
        most_rows = speculation.draft_rows(self._config.scheduler.max_running_requests)
        return Speculation(drafter, pace, speculation.request_tokens, most_rows, clock)

    def _token_capacity(self) -> int:
        limits = [self._executor.capacity.context_length, self._cache.num_blocks * self._cache.block_tokens]
        if self._config.max_model_len is not None:
            limits.append(self._config.max_model_len)
        return min(limits)
