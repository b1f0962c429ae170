"""How an engine gets the scheduler it will own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ferrum.cache.cache_manager import CacheManager
from ferrum.cache.sequence_states import SequenceStates
from ferrum.core.config import SchedulerConfig
from ferrum.core.events import Observers
from ferrum.scheduling.scheduler import ContinuousBatchScheduler
from ferrum.scheduling.speculation import Speculation
from ferrum.scheduling.step_pace import StepPace


class SchedulerMaker(Protocol):
    """Called once by the engine, with what it owns itself. The scheduler's class is one."""

    def __call__(
        self,
        config: SchedulerConfig,
        cache: CacheManager,
        observers: Observers,
        clock: Callable[[], float],
        states: SequenceStates | None,
        pace: StepPace,
        speculation: Speculation | None,
    ) -> ContinuousBatchScheduler: ...
