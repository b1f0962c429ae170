"""An executor for an engine without a model: every logit is zero."""

from __future__ import annotations

import numpy as np

from ferrum.assembly.stub_tokenizer import STUB_VOCABULARY_SIZE
from ferrum.cache.block_pool import BlockKeeper
from ferrum.core.block_store import BlockStore
from ferrum.core.step import KnownTokens, ScoredTokens, SequencePart, StepPlan, StepResult
from ferrum.execution.chosen_token import choose_with
from ferrum.execution.executor import ExecutorCapacity, ResolvedModelPlan, ResourceAuthority
from ferrum.runtimes.exact_log_probabilities import row_logprobs
from ferrum.sampling.sampler import MultinomialSampler, Sampler

_CONTEXT_LENGTH = 2048
_BLOCK_TOKENS = 32


class StubExecutor:
    """Engine-managed: holds nothing for a request. Greedily it chooses token 0, else any token."""

    resource_authority = ResourceAuthority.ENGINE_MANAGED
    keeps_same_tokens_law = True
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
        tokens = (
            choose_with(self._sampler, part.request_id, self._logits, choice)
            for part in plan.parts
            for choice in part.choices
        )
        scored = (self._score(part, part.scored) for part in plan.parts if part.scored is not None)
        return StepResult(tuple(tokens), tuple(scored))

    def _score(self, part: SequencePart, known: KnownTokens) -> ScoredTokens:
        rows = (row_logprobs(self._logits, token_id, known.num_top) for token_id in known.token_ids)
        return ScoredTokens(part.request_id, part.start_position, tuple(rows))

    def abort(self) -> None:
        """A step ends at once anyway."""

    def close(self) -> None:
        """Holds nothing."""
