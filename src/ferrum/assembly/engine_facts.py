"""What the evidence of an engine says of the engine: its model, its executor, its sizes."""

from __future__ import annotations

import os
from dataclasses import replace

from ferrum.assembly.component_config import ComponentConfig
from ferrum.assembly.loaded_model import LoadedModel
from ferrum.assembly.model_loading import PlanModel
from ferrum.cache.block_pool import KV_BLOCK
from ferrum.evidence.backend_selection import BackendSelection
from ferrum.evidence.open_evidence import EngineFacts
from ferrum.evidence.resource_events import WAITING_REQUESTS
from ferrum.execution.executor import Executor
from ferrum.scheduling.request_slots import REQUEST_SLOT


def engine_facts(
    components: ComponentConfig, argument: str | None, executor_name: str, executor: Executor
) -> EngineFacts:
    """``argument`` is what the model was loaded by, None without one."""
    scheduler = components.engine.scheduler
    return EngineFacts(
        config=components.engine,
        backend=backend_selection(components, argument, executor_name, executor),
        capacities={
            REQUEST_SLOT: scheduler.max_running_requests + scheduler.max_waiting_requests,
            WAITING_REQUESTS: scheduler.max_waiting_requests,
            KV_BLOCK: components.engine.kv_cache.num_blocks or executor.capacity.num_blocks,
        },
    )


def backend_selection(
    components: ComponentConfig, argument: str | None, executor_name: str, executor: Executor
) -> BackendSelection:
    """Without a model, whatever the executor says of itself."""
    if components.model is None:
        plan = executor.resolved_plan
        plan_hash = None if plan is None else plan.identity
        selection = BackendSelection(None, executor_name, executor_name, plan_hash=plan_hash)
    else:
        selection = replace(model_selection(components.model), executor=executor_name)
    return replace(selection, model=None if argument is None else _from_anywhere(argument))


def model_selection(model: LoadedModel) -> BackendSelection:
    """The parts of its identity where it has a plan, the fingerprint of its files where it has none."""
    if not isinstance(model, PlanModel):
        return BackendSelection(None, "", model.arithmetic, weights_digest=model.bundle.fingerprint)
    identity = model.identity
    return BackendSelection(None, "", model.arithmetic, identity.weights_digest, identity.plan_hash)


def _from_anywhere(argument: str) -> str:
    """A path that also holds in another working directory; anything else as it is."""
    return os.path.abspath(argument) if os.path.exists(argument) else argument
