"""EngineReporter: what an engine tells of itself, as values. Changes nothing."""

from __future__ import annotations

from ferrum.core.config import SchedulerConfig
from ferrum.engine.engine_resources import EngineResources
from ferrum.engine.snapshots import AdmissionSnapshot, ExecutionAttribution
from ferrum.engine.status import EngineStatus
from ferrum.engine.step_loop import StepLoop
from ferrum.execution.executor import Executor
from ferrum.scheduling.scheduler import ContinuousBatchScheduler


class EngineReporter:
    """Any thread may ask. ``context_length``: most tokens of prompt and output together."""

    def __init__(
        self,
        *,
        config: SchedulerConfig,
        executor: Executor,
        resources: EngineResources,
        scheduler: ContinuousBatchScheduler,
        steps: StepLoop,
        context_length: int,
    ) -> None:
        self._config = config
        self._executor = executor
        self._resources = resources
        self._scheduler = scheduler
        self._steps = steps
        self._context_length = context_length

    def status(self) -> EngineStatus:
        """Read without the engine's lock, so that it comes also from an engine that is stuck."""
        plan = self._executor.resolved_plan
        capacity, cache = self._executor.capacity, self._resources.cache
        token_bytes = plan.kv_bytes_per_token if plan else capacity.kv_bytes_per_token
        block_bytes = cache.block_tokens * token_bytes
        problem = self._steps.death_reason
        return EngineStatus(
            is_ready=problem is None and not self._steps.is_closing,
            problem=problem,
            num_running=self._scheduler.num_running,
            num_waiting=self._scheduler.num_waiting,
            num_kv_blocks=cache.num_blocks,
            num_used_kv_blocks=cache.num_used_blocks,
            kv_bytes=cache.num_blocks * block_bytes,
            used_kv_bytes=cache.num_used_blocks * block_bytes,
            context_length=self._context_length,
            prefix_cache=cache.status(self._scheduler.pins.num_blocks),
            recurrent_states=self._resources.recurrent_stats(self._executor),
        )

    def admission(self) -> AdmissionSnapshot:
        """Raises EngineStalled when the books are locked for long, InternalError when they are wrong."""
        counts = self._steps.snapshot()
        states = self._resources.recurrent_stats(self._executor)
        slots = self._config.max_running_requests
        if states is not None and states.total_slots is not None:
            slots = min(slots, states.total_slots)
        return AdmissionSnapshot(
            authority=self._resources.authority,
            max_running_requests=slots,
            max_num_batched_tokens=self._config.max_num_batched_tokens,
            num_waiting=counts.num_waiting,
            num_waiting_tokens=counts.num_waiting_tokens,
            num_prefilling=counts.num_prefilling,
            num_decoding=counts.num_decoding,
        )

    def attribution(self) -> ExecutionAttribution:
        """Whose arithmetic answers: asked of the executor."""
        plan = self._executor.resolved_plan
        return ExecutionAttribution(
            self._executor.resource_authority,
            plan.identity if plan else None,
            self._executor.keeps_same_tokens_law,
        )
