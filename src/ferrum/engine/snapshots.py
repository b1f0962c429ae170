"""What an engine admits and what computes for it, as values for operators and supervisors."""

from __future__ import annotations

from dataclasses import dataclass

from ferrum.core.errors import InternalError
from ferrum.execution.executor import ResourceAuthority


@dataclass(frozen=True, slots=True)
class AdmissionSnapshot:
    """Limits and counts between two steps, all read at once.

    ``max_running_requests`` is the least of the configured limit and the slots for recurrent states.
    Raises InternalError for a limit below 1, or more running requests than the limit: our books are wrong.
    """

    authority: ResourceAuthority
    max_running_requests: int
    max_num_batched_tokens: int
    num_waiting: int
    num_waiting_tokens: int
    num_prefilling: int
    num_decoding: int

    def __post_init__(self) -> None:
        for name in ("max_running_requests", "max_num_batched_tokens"):
            if getattr(self, name) < 1:
                raise InternalError(f"{name} is {getattr(self, name)}; no engine could admit anything")
        if self.num_running > self.max_running_requests:
            raise InternalError(
                f"{self.num_running} requests run although {self.max_running_requests} are the most"
            )

    @property
    def num_running(self) -> int:
        return self.num_prefilling + self.num_decoding


@dataclass(frozen=True, slots=True)
class ExecutionAttribution:
    """As the executor itself tells it. ``identity``: plan, weights and numerics; None where it has no plan.

    ``keeps_same_tokens_law``: what is chosen depends on request and seed alone, bit for bit.
    """

    authority: ResourceAuthority
    identity: str | None
    keeps_same_tokens_law: bool
