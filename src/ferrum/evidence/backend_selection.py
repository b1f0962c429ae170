"""BackendSelection: which model runs, on which executor, with whose arithmetic."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackendSelection:
    """``model`` is the argument that loads it. The digests are those of ModelIdentity; None where the
    executor has no plan. ``weights_digest`` is that of the model's files.
    """

    model: str | None
    executor: str
    numerics_id: str
    weights_digest: str | None = None
    plan_hash: str | None = None

    @property
    def keeps_same_tokens_law(self) -> bool:
        """Whether a request's tokens depend on it and its seed alone: so do executors that run a plan."""
        return self.plan_hash is not None
