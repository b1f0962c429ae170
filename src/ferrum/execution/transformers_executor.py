"""Runs steps on a model that computes one sequence a forward pass. Imports no framework."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import numpy as np

from ferrum.cache.block_pool import BlockKeeper
from ferrum.core.arrays import FloatArray
from ferrum.core.block_store import BlockStore
from ferrum.core.errors import InternalError, ModelError
from ferrum.core.logprobs import RowLogprobs
from ferrum.core.step import KnownTokens, SampledToken, ScoredTokens, SequencePart, StepPlan, StepResult
from ferrum.execution.cache_objects import CacheObjects, HeldSequence
from ferrum.execution.chosen_token import choose_with
from ferrum.execution.executor import ExecutorCapacity, ResolvedModelPlan, ResourceAuthority
from ferrum.runtimes.causal_model import CacheObject, CausalModel
from ferrum.runtimes.exact_log_probabilities import row_logprobs
from ferrum.runtimes.protocol import StepAborted
from ferrum.sampling.sampler import MultinomialSampler, Sampler

_SELF_TEST_TOKENS = 8
# Of the logits' standard deviation. Two ways to the same state round differently, in half precision a lot; a
# wrong state differs by about one deviation.
_CHUNK_TOLERANCE = 0.1

_log = logging.getLogger("ferrum.execution")


class TransformersExecutor:
    """An Executor over a CausalModel, one request a forward pass. Engine-managed: a request's first block is
    the handle of the model's cache object, which goes when the engine gives the block back.

    Repeating a part costs nothing, going back costs a rebuild. A result may depend on how a prompt was cut
    into chunks, by rounding: the same-tokens law is not kept.
    """

    resource_authority = ResourceAuthority.ENGINE_MANAGED
    keeps_same_tokens_law = False
    resolved_plan: ResolvedModelPlan | None = None
    block_store: BlockStore | None = None

    def __init__(
        self, model: CausalModel, capacity: ExecutorCapacity, sampler: Sampler | None = None
    ) -> None:
        self._model = model
        self._sampler = sampler or MultinomialSampler()
        self._abort = threading.Event()
        self._takes_chunks = True
        self.capacity = capacity
        self._objects = CacheObjects()
        self.block_keeper: BlockKeeper | None = self._objects

    def prepare_startup(self) -> None:
        """Runs a few tokens in different chunks.

        Raises ModelError for logits that are not finite. Some architectures compute a chunk after a prefix
        wrongly, without saying so: their prompts are fed one token at a time after the first chunk.
        """
        capacity = self.capacity
        num_tokens = min(_SELF_TEST_TOKENS, capacity.context_length)
        ids = [number % capacity.vocabulary_size for number in range(num_tokens)]
        first, second = ids[: num_tokens // 2], ids[num_tokens // 2 :]
        chunked = self._self_test([first, second])
        single = self._self_test([first, *([token_id] for token_id in second)])
        if not (np.isfinite(chunked).all() and np.isfinite(single).all()):
            raise ModelError("the self-test step gave logits that are not finite: the weights are damaged")
        self._takes_chunks = bool(np.abs(chunked - single).max() <= _CHUNK_TOLERANCE * single.std())
        if not self._takes_chunks:
            _log.warning("this architecture takes a long prompt one token at a time, which is slow")

    def execute(self, plan: StepPlan) -> StepResult:
        tokens: list[SampledToken] = []
        scored: list[ScoredTokens] = []
        for part in plan.parts:
            held = self._held(part)
            if part.scored is not None:
                scored.append(
                    ScoredTokens(part.request_id, part.start_position, self._score(held, part, part.scored))
                )
            self._compute(held, part, len(part.token_ids) - max(0, len(part.choices) - 1))
            for number, choice in enumerate(part.choices, 1 - len(part.choices)):
                self._compute(held, part, len(part.token_ids) + number)
                tokens.append(choose_with(self._sampler, part.request_id, _logits(held, part), choice))
        return StepResult(tuple(tokens), tuple(scored))

    def abort(self) -> None:
        self._abort.set()

    def close(self) -> None:
        self._objects.clear()
        self._model.close()

    def _compute(self, held: HeldSequence, part: SequencePart, num_tokens: int) -> None:
        """Goes on until the first ``num_tokens`` of the part are in the cache."""
        rest = part.token_ids[len(held.token_ids) - part.start_position : num_tokens]
        for chunk in self._chunks(rest, is_first=not held.token_ids):
            self._advance(held, chunk)

    def _score(self, held: HeldSequence, part: SequencePart, known: KnownTokens) -> tuple[RowLogprobs, ...]:
        """A forward pass for each token: the model gives the logits after the last one only."""
        rows = []
        for num_tokens, token_id in enumerate(known.token_ids, 1):
            self._compute(held, part, num_tokens)
            rows.append(row_logprobs(_logits(held, part), token_id, known.num_top))
        return tuple(rows)

    def _held(self, part: SequencePart) -> HeldSequence:
        """The part's sequence up to the part, or into it when a step was given up there."""
        handle, start = part.block_table[0], part.start_position
        held = self._objects.get(handle)
        if held is not None and held.can_go_on_with(part.token_ids, start, _num_to_first_output(part)):
            return held
        known = held.token_ids[:start] if held is not None else []
        if len(known) != start:
            raise InternalError(
                f"{part.request_id} goes on at {start}, but its cache object holds {len(known)} tokens"
            )
        rebuilt = HeldSequence(self._model.new_cache())
        if known:
            self._advance(rebuilt, known)
        self._objects.put(handle, rebuilt)
        return rebuilt

    def _chunks(self, token_ids: Sequence[int], is_first: bool) -> list[Sequence[int]]:
        if not token_ids:
            return []
        if is_first or self._takes_chunks:
            return [token_ids]
        return [(token_id,) for token_id in token_ids]

    def _advance(self, held: HeldSequence, token_ids: Sequence[int]) -> None:
        if self._abort.is_set():
            self._abort.clear()
            raise StepAborted
        cache, held.cache = held.cache, None
        assert cache is not None
        held.logits = self._model.forward(token_ids, cache)
        held.cache = cache
        held.token_ids += token_ids

    def _self_test(self, chunks: Sequence[Sequence[int]]) -> FloatArray:
        cache: CacheObject = self._model.new_cache()
        logits = [self._model.forward(chunk, cache) for chunk in chunks if chunk]
        return logits[-1]


def _logits(held: HeldSequence, part: SequencePart) -> FloatArray:
    """After what is held. Raises InternalError where they are not finite."""
    assert held.logits is not None
    if not np.isfinite(held.logits).all():
        raise InternalError(f"the logits of {part.request_id} are not finite")
    return held.logits


def _num_to_first_output(part: SequencePart) -> int:
    """Of the part's tokens, those up to the first whose logits are needed."""
    if part.scored is not None and part.scored.token_ids:
        return 1
    return len(part.token_ids) - max(0, len(part.choices) - 1)
