"""What an engine manages for its requests, and on whose authority."""

from __future__ import annotations

from dataclasses import dataclass

from ferrum.cache.cache_manager import CacheManager
from ferrum.cache.recurrent_state import RecurrentStateManager
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

    @property
    def kv_manager(self) -> CacheManager:
        """The KV manager that the engine owns. Raises InternalError when the executor owns the memory."""
        if self.authority is not ResourceAuthority.ENGINE_MANAGED:
            raise InternalError("the executor owns the KV memory of a plan-runtime engine, not a KV manager")
        return self.cache
