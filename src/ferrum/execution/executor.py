"""What every executor promises: a step plan in, the chosen tokens out. Knows no texts and no queues."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from ferrum.cache.block_pool import BlockKeeper
from ferrum.core.block_store import BlockStore
from ferrum.core.step import StepPlan, StepResult
from ferrum.plan.plan_work import UNIFORM_WORK, PlanWork


class ResourceAuthority(StrEnum):
    """Who owns the memory a request holds while it lives.

    PLAN_RUNTIME    the executor: its KV and state arenas are sized from the plan
    ENGINE_MANAGED  the engine's cache managers; the executor uses the handles it is given
    """

    PLAN_RUNTIME = "plan-runtime"
    ENGINE_MANAGED = "engine-managed"


@dataclass(frozen=True, slots=True)
class ExecutorCapacity:
    """Sizes an executor was built with.

    kv_bytes_per_token     for an engine-managed executor; a plan-runtime one says it in its resolved plan
    recurrent_state_bytes  the state of one sequence that does not grow with it, 0 = none: an engine-managed
                           executor with one gets a state slot for each running request
    """

    num_blocks: int
    block_tokens: int
    context_length: int
    vocabulary_size: int
    kv_bytes_per_token: int = 0
    recurrent_state_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ResolvedModelPlan:
    """The plan an executor really runs: its identity (plan hash, weights digest, numerics id) and KV size.

    ``work`` is what its steps read and compute, for predicting how long they take.
    """

    identity: str
    kv_bytes_per_token: int
    work: PlanWork = UNIFORM_WORK


class Executor(Protocol):
    """Runs steps. ``execute`` is called by one thread at a time; ``abort`` by any.

    Running a plan again computes the same thing again: a step that failed or was aborted may simply be
    repeated.
    """

    @property
    def resource_authority(self) -> ResourceAuthority: ...
    @property
    def keeps_same_tokens_law(self) -> bool:
        """Whether what is chosen depends on the sequence alone, bit for bit, however steps cut it."""
        ...

    @property
    def capacity(self) -> ExecutorCapacity: ...
    @property
    def resolved_plan(self) -> ResolvedModelPlan | None:
        """The authoritative plan; a plan-runtime executor always has one."""
        ...

    @property
    def block_store(self) -> BlockStore | None:
        """Its KV blocks, if requests can share them; None: each request's blocks are its own."""
        ...

    @property
    def block_keeper(self) -> BlockKeeper | None:
        """Hears of every block that was given back, for an executor that holds something behind it."""
        ...

    def prepare_startup(self) -> None:
        """Called once, before the first request: proves that a step works, or raises ModelError."""
        ...

    def execute(self, plan: StepPlan) -> StepResult:
        """Computes the plan; one SampledToken for each of the parts' choices, in the plan's order.

        Raises StepAborted (runtimes.protocol) when ``abort`` was called meanwhile; anything else is a
        failure.
        """
        ...

    def abort(self) -> None:
        """Makes a running step give up soon; without one it does nothing that matters."""
        ...

    def close(self) -> None:
        """Frees memory and threads; idempotent."""
        ...
