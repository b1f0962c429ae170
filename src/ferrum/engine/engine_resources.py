"""What an engine manages for its requests, and on whose authority."""

from __future__ import annotations

from dataclasses import dataclass

from ferrum.cache.cache_manager import CacheManager
from ferrum.cache.recurrent_state import RecurrentStateManager, RecurrentStateStats
from ferrum.cache.sequence_states import SequenceStates
from ferrum.core.errors import InternalError, InvalidConfig
from ferrum.execution.executor import Executor, ResourceAuthority


@dataclass(frozen=True, slots=True)
class EngineResources:
    """``cache`` counts KV blocks: its own (engine-managed), or those of the executor's arena (plan-runtime).

    ``recurrent_states`` is there exactly when the authority is engine-managed.
    """

    authority: ResourceAuthority
    cache: CacheManager
    recurrent_states: RecurrentStateManager | None = None

    def require_match(self, executor: Executor) -> None:
        """Raises InvalidConfig when this was composed for an executor of the other authority."""
        if executor.resource_authority is not self.authority:
            raise InvalidConfig(
                "executor",
                f"its resource authority is {executor.resource_authority}, but the engine's resources are "
                f"composed for {self.authority}",
            )

    def sequence_states(self, executor: Executor) -> SequenceStates | None:
        """The states that the engine keeps for this executor's sequences; None where it keeps none.

        Raises InternalError when they are needed and nobody manages any.
        """
        state_bytes = executor.capacity.recurrent_state_bytes
        if self.authority is not ResourceAuthority.ENGINE_MANAGED or not state_bytes:
            return None
        if self.recurrent_states is None:
            raise InternalError("the executor's model needs recurrent states, and the engine manages none")
        return SequenceStates(self.recurrent_states, state_bytes)

    def recurrent_stats(self, executor: Executor) -> RecurrentStateStats | None:
        """How full the slots are that the engine keeps for this executor's sequences; None: it keeps none."""
        if self.recurrent_states is None or not executor.capacity.recurrent_state_bytes:
            return None
        return self.recurrent_states.stats

    @property
    def kv_manager(self) -> CacheManager:
        """The KV manager that the engine owns. Raises InternalError when the executor owns the memory."""
        if self.authority is not ResourceAuthority.ENGINE_MANAGED:
            raise InternalError("the executor owns the KV memory of a plan-runtime engine, not a KV manager")
        return self.cache
