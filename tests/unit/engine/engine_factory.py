"""Engines over a scripted executor, as the tests of the engine need them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ferrum.cache.block_pool import BlockPool
from ferrum.cache.cache_manager import CacheManager
from ferrum.cache.prefix_cache import PrefixCache
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.drafting import Drafter
from ferrum.core.events import Event
from ferrum.core.ledger import LifecycleLedger
from ferrum.core.processor_loans import ProcessorLoans
from ferrum.core.request import InferenceRequest, TextPrompt
from ferrum.core.sampling_params import SamplingParams
from ferrum.engine.engine import ContinuousBatchEngine
from ferrum.engine.engine_resources import EngineResources
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.testing.scripted_executor import ScriptedExecutor


@dataclass
class Recorder:
    """Keeps every event."""

    events: list[Event] = field(default_factory=list)

    def on(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


@dataclass
class Workshop:
    """An engine and everything a test wants to look at."""

    engine: ContinuousBatchEngine
    executor: ScriptedExecutor
    cache: CacheManager
    ledger: LifecycleLedger
    recorder: Recorder

    def assert_nothing_is_held(self) -> None:
        assert self.ledger.outstanding() == {}
        assert self.ledger.num_open_owners == 0
        assert (self.ledger.num_underflows, self.ledger.num_dropped_leases) == (0, 0)
        assert self.cache.num_used_blocks == 0
        status = self.engine.status()
        assert (status.num_running, status.num_waiting) == (0, 0)


def build_workshop(
    executor: ScriptedExecutor | None = None,
    scheduler: SchedulerConfig | None = None,
    tokenizer: ByteTokenizer | None = None,
    config: EngineConfig | None = None,
    clock: Callable[[], float] = time.monotonic,
    drafter: Drafter | None = None,
    ledger: LifecycleLedger | None = None,
    loans: ProcessorLoans | None = None,
) -> Workshop:
    executor = executor or ScriptedExecutor()
    config = config or EngineConfig(scheduler=scheduler or SchedulerConfig())
    ledger = ledger or LifecycleLedger()
    capacity, store = executor.capacity, executor.block_store
    prefixes = (
        PrefixCache("scripted", capacity.block_tokens, store) if store and config.prefix_cache else None
    )
    cache = CacheManager(BlockPool(capacity.num_blocks, ledger), capacity.block_tokens, prefixes)
    recorder = Recorder()
    engine = ContinuousBatchEngine(
        config=config,
        tokenizer=tokenizer or ByteTokenizer(),
        chat_encoder=None,
        executor=executor,
        resources=EngineResources(executor.resource_authority, cache),
        observers=(recorder,),
        clock=clock,
        drafter=drafter,
        loans=loans,
    )
    return Workshop(engine, executor, cache, ledger, recorder)


@asynccontextmanager
async def running(workshop: Workshop) -> AsyncIterator[Workshop]:
    """Closes the engine and checks that nothing is held, whatever the test did."""
    try:
        yield workshop
    finally:
        await workshop.engine.shutdown(0.0)
    workshop.assert_nothing_is_held()


def ask(
    request_id: str = "a", prompt: str = "hello", max_tokens: int | None = 8, **sampling: object
) -> InferenceRequest:
    sampling = {"temperature": 0.0, "seed": 1, **sampling}
    return InferenceRequest(
        request_id,
        TextPrompt(prompt),
        SamplingParams(max_tokens=max_tokens, **sampling),
    )


async def eventually(condition: Callable[[], bool], within_s: float = 2.0) -> None:
    """Waits until ``condition`` holds; fails when it does not in time."""
    deadline = asyncio.get_running_loop().time() + within_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "did not happen in time"
        await asyncio.sleep(0.002)
