"""Runs steps on a runtime that interprets a model plan. Knows no requests beyond their ids."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ferrum.cache.block_pool import BlockKeeper
from ferrum.core.arrays import FloatArray
from ferrum.core.block_store import BlockStore
from ferrum.core.errors import InvalidConfig, ModelError
from ferrum.core.step import SampledToken, ScoredTokens, StepPlan, StepResult
from ferrum.execution.batch_builder import BatchBuilder
from ferrum.execution.chosen_token import choose_with
from ferrum.execution.executor import ExecutorCapacity, ResolvedModelPlan, ResourceAuthority
from ferrum.execution.named_outputs import name_outputs
from ferrum.runtimes.exact_log_probabilities import row_logprobs
from ferrum.runtimes.protocol import LogitsDetail, Runtime, StepBatch
from ferrum.sampling.sampler import Sampler

_SELF_TEST_TOKENS = 4


class PlanExecutor:
    """An Executor over a Runtime. The runtime owns weights and KV arena, so the authority is plan-runtime.

    ``logit_detail`` DIGEST makes every chosen token carry the digest of its logits' bits. A ``sampler``
    replaces the runtime's own: every row of logits then passes through Python, which is slower. The two
    exclude each other (InvalidConfig).
    """

    resource_authority = ResourceAuthority.PLAN_RUNTIME
    block_keeper: BlockKeeper | None = None

    def __init__(
        self,
        runtime: Runtime,
        resolved_plan: ResolvedModelPlan,
        logit_detail: LogitsDetail = LogitsDetail.NONE,
        sampler: Sampler | None = None,
    ) -> None:
        if sampler is not None and logit_detail is LogitsDetail.DIGEST:
            raise InvalidConfig("logit_digests", "is only there with the runtime's own sampler")
        self._runtime = runtime
        self._sampler = sampler
        self._logit_detail = logit_detail
        self._batches = BatchBuilder()
        self._is_closed = False
        self.resolved_plan = resolved_plan
        self.keeps_same_tokens_law = runtime.keeps_same_tokens_law
        self.block_store: BlockStore | None = runtime
        self.capacity = ExecutorCapacity(
            num_blocks=runtime.num_blocks,
            block_tokens=runtime.block_tokens,
            context_length=runtime.context_length,
            vocabulary_size=runtime.vocabulary_size,
        )

    def prepare_startup(self) -> None:
        """Runs one small step twice: its logits must be finite, and the same bits both times.

        Raises ModelError when they are not, so that a broken weight file or kernel never serves.
        """
        first, second = self._self_test_logits(), self._self_test_logits()
        if not np.isfinite(first).all():
            raise ModelError("the self-test step gave logits that are not finite: the weights are damaged")
        if self._runtime.keeps_same_tokens_law and first.tobytes() != second.tobytes():
            raise ModelError("the self-test step gave different logits when it was repeated")

    def execute(self, plan: StepPlan) -> StepResult:
        batch = self._batches.build(plan)
        if self._sampler is not None:
            return self._execute_with(self._sampler, plan, batch)
        return name_outputs(plan, self._runtime.run(batch, self._logit_detail))

    def abort(self) -> None:
        self._runtime.abort()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._runtime.close()

    def _execute_with(self, sampler: Sampler, plan: StepPlan, batch: StepBatch) -> StepResult:
        logits = iter(
            self._runtime.run(replace(batch, sampling=None, logprobs=None), LogitsDetail.FULL).logits
        )
        tokens: list[SampledToken] = []
        scored: list[ScoredTokens] = []
        for part in plan.parts:
            if part.scored is not None:
                ids, num_top = part.scored.token_ids, part.scored.num_top
                rows = tuple(row_logprobs(next(logits), token_id, num_top) for token_id in ids)
                scored.append(ScoredTokens(part.request_id, part.start_position, rows))
            for choice in part.choices:
                tokens.append(choose_with(sampler, part.request_id, next(logits), choice))
        return StepResult(tuple(tokens), tuple(scored))

    def _self_test_logits(self) -> FloatArray:
        """Logits [num_tokens, vocabulary] of a few ids, a step each, written to the first KV block."""
        capacity = self.capacity
        limits = (capacity.vocabulary_size, capacity.block_tokens, capacity.context_length)
        num_tokens = min(_SELF_TEST_TOKENS, *limits)
        steps = [self._runtime.run(_one_token(number), LogitsDetail.FULL) for number in range(num_tokens)]
        return np.concatenate([step.logits for step in steps])


def _one_token(number: int) -> StepBatch:
    """Token ``number`` at position ``number``: the smallest step there is, so every limit allows it."""
    row = np.array([number], dtype=np.int32)
    return StepBatch(
        token_ids=row,
        positions=row,
        sequence_starts=np.array([0, 1], dtype=np.int32),
        block_tables=np.zeros((1, 1), dtype=np.int32),
        output_rows=np.array([0], dtype=np.int32),
        sampling=None,
    )
