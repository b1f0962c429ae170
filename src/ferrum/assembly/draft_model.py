"""A smaller model that drafts for another: that the two fit, what it takes, and its runtime."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ferrum.assembly.memory_fit import MemoryNeeds
from ferrum.core.config import EngineConfig
from ferrum.core.errors import InvalidConfig
from ferrum.core.speculation_config import SpeculationConfig
from ferrum.execution.executor import ResolvedModelPlan
from ferrum.plan.model_plan import ModelPlan
from ferrum.runtimes.protocol import Runtime
from ferrum.tokenization.vocabulary import TOKENS_KEY
from ferrum.weights.checkpoint import Checkpoint

DRAFT_OPTION = "spec_draft"


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A plan and its runtime; whoever takes ``runtime`` closes it. ``step_tokens``: its longest step."""

    plan: ModelPlan
    runtime: Runtime
    resolved_plan: ResolvedModelPlan
    step_tokens: int


def without_speculation(config: EngineConfig) -> EngineConfig:
    """A draft model's own configuration: nobody drafts for it."""
    return replace(config, speculation=SpeculationConfig())


def require_same_vocabulary(target: Checkpoint, draft: Checkpoint, draft_name: str) -> None:
    """Raises InvalidConfig with the first token that the two read differently.

    One vocabulary may be longer: models fill theirs up to convenient sizes.
    """
    ours, theirs = (each.metadata.get_str_array(TOKENS_KEY) for each in (target, draft))
    for token_id, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            raise InvalidConfig(
                DRAFT_OPTION,
                f"{draft_name} has another vocabulary: its token {token_id} is {other!r}, the model's is "
                f"{one!r}; choose a draft of the same family, or --speculate ngram, which needs none",
            )


def with_draft(needs: MemoryNeeds, draft: MemoryNeeds, shared_bytes: int) -> MemoryNeeds:
    """What both take together at any sizes. ``shared_bytes`` of the overheads are there only once."""
    return replace(
        needs,
        weight_bytes=needs.weight_bytes + draft.weight_bytes,
        overhead_bytes=needs.overhead_bytes + draft.overhead_bytes - shared_bytes,
        kv_bytes_per_token=needs.kv_bytes_per_token + draft.kv_bytes_per_token,
        scratch=lambda sizes: needs.scratch(sizes) + draft.scratch(sizes),
    )
