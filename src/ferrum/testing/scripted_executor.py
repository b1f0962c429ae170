"""An executor without a model: it stores tokens in KV blocks and chooses from what it reads back."""

from __future__ import annotations

import hashlib
import threading
from array import array
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ferrum.cache.block_pool import BlockKeeper
from ferrum.core.arrays import FloatArray
from ferrum.core.block_store import BlockStore
from ferrum.core.logprobs import RowLogprobs
from ferrum.core.step import (
    KnownTokens,
    SampledToken,
    SamplingInstruction,
    ScoredTokens,
    SequencePart,
    StepPlan,
    StepResult,
)
from ferrum.execution.executor import ExecutorCapacity, ResolvedModelPlan, ResourceAuthority
from ferrum.runtimes.exact_log_probabilities import row_logprobs
from ferrum.runtimes.protocol import StepAborted

History = tuple[int, ...]
"""Every token of a sequence as the cache holds it: prompt and output so far."""

Choose = Callable[[str, History, SamplingInstruction], int]
"""(request id, history, instruction) to the next token."""


def letter_of_history(request_id: str, history: History, sampling: SamplingInstruction) -> int:
    """A lower-case letter that depends on every token, their order and the seed, and on nothing else."""
    text = f"{history}{sampling.seed if sampling.temperature else None}"
    return ord("a") + hashlib.sha256(text.encode()).digest()[0] % 26


def logits_of_history(history: History, vocabulary_size: int) -> FloatArray:
    """[vocabulary_size], for log-probabilities; what is chosen has nothing to do with them."""
    seed = np.frombuffer(hashlib.sha256(repr(history).encode()).digest(), np.uint32)
    return np.random.default_rng(seed).normal(0, 3, vocabulary_size).astype(np.float32)


def scripted(answers: Mapping[str, Sequence[int]]) -> Choose:
    """Gives each request its own tokens in turn, then its last one again and again."""
    prompt_lengths: dict[str, int] = {}

    def choose(request_id: str, history: History, sampling: SamplingInstruction) -> int:
        prompt_length = prompt_lengths.setdefault(request_id, sampling.position)
        answer = answers[request_id]
        return answer[min(sampling.position - prompt_length, len(answer) - 1)]

    return choose


class ScriptedBlocks:
    """A BlockStore over the executor's slots. A slot that was never written reads as token −1."""

    layout_id = "scripted"

    def __init__(self, slots: dict[int, int], block_tokens: int) -> None:
        self._slots = slots
        self._block_tokens = block_tokens
        self.block_bytes = block_tokens * 4
        self.num_copies = 0

    def copy_block(self, source: int, target: int) -> None:
        self.num_copies += 1
        self.write_block(target, self.read_block(source))

    def read_block(self, block: int) -> bytes:
        return array("i", [self._slots.get(slot, -1) for slot in self._block_slots(block)]).tobytes()

    def write_block(self, block: int, content: bytes) -> None:
        self._slots.update(zip(self._block_slots(block), array("i", content), strict=True))

    def _block_slots(self, block: int) -> range:
        return range(block * self._block_tokens, (block + 1) * self._block_tokens)


class ScriptedExecutor:
    """Deterministic and strict: a wrong block table, a gap or an overlap in positions changes what is chosen.

    ``before_step`` sees every plan first and may block or raise. ``latency_s`` is slept in each step, and
    ``abort`` ends the sleep with StepAborted. ``num_steps``, ``plans`` (when ``keeps_plans``),
    ``num_prepared`` and ``is_closed`` tell what happened.
    """

    block_keeper: BlockKeeper | None = None
    keeps_same_tokens_law = True

    def __init__(
        self,
        *,
        choose: Choose = letter_of_history,
        capacity: ExecutorCapacity | None = None,
        resource_authority: ResourceAuthority = ResourceAuthority.PLAN_RUNTIME,
        before_step: Callable[[StepPlan], None] | None = None,
        latency_s: float = 0.0,
        keeps_plans: bool = False,
    ) -> None:
        self.capacity = capacity or ExecutorCapacity(
            num_blocks=64, block_tokens=4, context_length=256, vocabulary_size=258
        )
        self.resource_authority = resource_authority
        is_planned = resource_authority is ResourceAuthority.PLAN_RUNTIME
        self.resolved_plan = ResolvedModelPlan("scripted", kv_bytes_per_token=8) if is_planned else None
        self.before_step = before_step
        self.latency_s = latency_s
        self.num_steps = 0
        self.num_prepared = 0
        self.is_closed = False
        self.plans: list[StepPlan] = []
        self._keeps_plans = keeps_plans
        self._choose = choose
        self._abort = threading.Event()
        self._slots: dict[int, int] = {}  # block · block_tokens + offset to the token stored there
        self.block_store: BlockStore | None = (
            ScriptedBlocks(self._slots, self.capacity.block_tokens) if is_planned else None
        )

    def prepare_startup(self) -> None:
        self.num_prepared += 1

    def execute(self, plan: StepPlan) -> StepResult:
        assert not self.is_closed, "execute after close"
        self.num_steps += 1
        if self._keeps_plans:
            self.plans.append(plan)
        if self.before_step is not None:
            self.before_step(plan)
        if self.latency_s and self._abort.wait(self.latency_s):
            self._abort.clear()
            raise StepAborted
        for part in plan.parts:
            self._store(part)
        tokens = (
            self._sample(part, end, choice)
            for part in plan.parts
            for end, choice in zip(_choice_ends(part), part.choices, strict=True)
        )
        scored = (self._score(part, part.scored) for part in plan.parts if part.scored is not None)
        return StepResult(tuple(tokens), tuple(scored))

    def abort(self) -> None:
        self._abort.set()

    def close(self) -> None:
        self.is_closed = True

    def _store(self, part: SequencePart) -> None:
        assert part.token_ids, f"{part.request_id}: a part without tokens"
        for position, token_id in enumerate(part.token_ids, part.start_position):
            self._slots[self._slot(part, position)] = token_id

    def _sample(self, part: SequencePart, num_tokens: int, sampling: SamplingInstruction) -> SampledToken:
        assert sampling.position == num_tokens, (
            f"{part.request_id}: chooses {sampling.position} after {num_tokens}"
        )
        history = self._history(part, num_tokens)
        digest = int.from_bytes(hashlib.sha256(repr(history).encode()).digest()[:8], "little")
        token_id = self._choose(part.request_id, history, sampling)
        logprobs = None if sampling.logprobs is None else self._logprobs(history, token_id, sampling.logprobs)
        return SampledToken(part.request_id, token_id, digest, logprobs)

    def _score(self, part: SequencePart, known: KnownTokens) -> ScoredTokens:
        rows = (
            self._logprobs(self._history(part, end), token_id, known.num_top)
            for end, token_id in enumerate(known.token_ids, part.start_position + 1)
        )
        return ScoredTokens(part.request_id, part.start_position, tuple(rows))

    def _history(self, part: SequencePart, num_tokens: int) -> History:
        return tuple(self._slots[self._slot(part, position)] for position in range(num_tokens))

    def _logprobs(self, history: History, token_id: int, num_top: int) -> RowLogprobs:
        logits = logits_of_history(history, self.capacity.vocabulary_size)
        return row_logprobs(logits, token_id, num_top)

    def _slot(self, part: SequencePart, position: int) -> int:
        block, offset = divmod(position, self.capacity.block_tokens)
        return part.block_table[block] * self.capacity.block_tokens + offset


def _choice_ends(part: SequencePart) -> range:
    """After how many tokens of the sequence each of the part's choices is made."""
    end = part.start_position + len(part.token_ids)
    return range(end - len(part.choices) + 1, end + 1)
