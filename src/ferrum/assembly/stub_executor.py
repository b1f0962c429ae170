"""An executor for an engine without a model: every logit is zero."""

from __future__ import annotations

import numpy as np

from ferrum.assembly.stub_tokenizer import STUB_VOCABULARY_SIZE
from ferrum.cache.block_pool import BlockKeeper
from ferrum.core.block_store import BlockStore
from ferrum.core.step import SampledToken, StepPlan, StepResult
from ferrum.execution.executor import ExecutorCapacity, ResolvedModelPlan, ResourceAuthority
from ferrum.sampling.sampler import MultinomialSampler, Sampler

_CONTEXT_LENGTH = 2048
_BLOCK_TOKENS = 32


class StubExecutor:
    """Engine-managed: holds nothing for a request. Greedily it chooses token 0, else any token."""

    resource_authority = ResourceAuthority.ENGINE_MANAGED
    resolved_plan: ResolvedModelPlan | None = None
    block_store: BlockStore | None = None
    block_keeper: BlockKeeper | None = None

    def __init__(self, num_sequences: int, sampler: Sampler | None = None) -> None:
        self._sampler = sampler or MultinomialSampler()
        self._logits = np.zeros(STUB_VOCABULARY_SIZE, dtype=np.float32)
        self.capacity = ExecutorCapacity(
            num_blocks=num_sequences * _CONTEXT_LENGTH // _BLOCK_TOKENS,
            block_tokens=_BLOCK_TOKENS,
            context_length=_CONTEXT_LENGTH,
            vocabulary_size=STUB_VOCABULARY_SIZE,
        )

    def prepare_startup(self) -> None:
        """Nothing can be wrong with zeros."""

    def execute(self, plan: StepPlan) -> StepResult:
        return StepResult(
            tuple(
                SampledToken(part.request_id, self._sampler.choose(self._logits, choice))
                for part in plan.parts
                for choice in part.choices
            )
        )

    def abort(self) -> None:
        """A step ends at once anyway."""

    def close(self) -> None:
        """Holds nothing."""
