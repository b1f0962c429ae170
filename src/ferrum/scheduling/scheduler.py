"""Which tokens of which requests the next step computes. Knows no texts, no callers and no device."""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from operator import eq
from types import MappingProxyType

from ferrum.cache.cache_manager import CacheManager
from ferrum.cache.prefix_match import PrefixMatch
from ferrum.cache.sequence_states import SequenceStates
from ferrum.core.cache_use import CacheUse
from ferrum.core.config import SchedulerConfig
from ferrum.core.draft_use import DraftUse
from ferrum.core.drafting import DraftWish
from ferrum.core.errors import InvalidRequest, QueueFull, ResourceExhausted
from ferrum.core.events import Observers, RequestAdmitted, RequestPreempted, TokensDrafted
from ferrum.core.scheduler_snapshot import SchedulerSnapshot
from ferrum.core.scheduling_policy import SchedulingPolicy
from ferrum.core.step import SampledToken, SequencePart, StepPlan
from ferrum.plan.plan_work import UNIFORM_WORK
from ferrum.scheduling.block_promises import BlockPromises
from ferrum.scheduling.fill_first import FillFirst
from ferrum.scheduling.output_lengths import OutputLengths
from ferrum.scheduling.pinned_prefixes import PinnedPrefixes
from ferrum.scheduling.prefill_shares import PrefillShares
from ferrum.scheduling.prefix_rendezvous import PrefixRendezvous
from ferrum.scheduling.sequence import Sequence, SequenceSpec
from ferrum.scheduling.speculation import Speculation
from ferrum.scheduling.step_pace import StepPace
from ferrum.scheduling.tenant_shares import GENERATED_TOKEN_COST, TenantShares
from ferrum.scheduling.token_budget import TokenBudget
from ferrum.scheduling.waiting_queue import WaitingQueue

_NO_DRAFTS: Mapping[str, tuple[int, ...]] = MappingProxyType({})
_NO_TOKENS: list[SampledToken] = []


class ContinuousBatchScheduler:
    """One StepPlan per iteration: decodes, then admission, then chunked prefill in the rest of the budgets of
    tokens and time. With ``prefill_first_until_active`` decodes wait while the batch fills.

    Requests are admitted in the order of their tickets, or of priorities and shares if so configured, when
    the KV room promised to them is there. A request that outgrows its promise when nothing is left preempts
    the youngest running one of the least priority, which keeps its generated tokens and its ticket and is
    computed again later. Because a result never depends on batch or chunk, none of this changes a token.
    Mutated under the engine's lock only; ``schedule`` costs O(running requests).
    """

    def __init__(
        self,
        config: SchedulerConfig,
        cache: CacheManager,
        observers: Observers | None = None,
        clock: Callable[[], float] = time.monotonic,
        states: SequenceStates | None = None,
        pace: StepPace | None = None,
        speculation: Speculation | None = None,
    ) -> None:
        self._config = config
        self._speculation = speculation
        self._pace = pace or StepPace(UNIFORM_WORK)
        self._prefill_shares = PrefillShares(config, self._pace)
        self._fill_first = FillFirst(min(config.prefill_first_until_active, config.max_running_requests))
        self._cache = cache
        self._states = states
        self._observers = observers or Observers()
        self._clock = clock
        self._promises = BlockPromises(cache)
        self._output_lengths = OutputLengths(config.expected_output_tokens)
        self.pins = PinnedPrefixes(cache, self._promises)
        self._rendezvous = PrefixRendezvous(
            config.prefix_rendezvous_max_wait_ms / 1000 if cache.shares_prefixes else 0.0,
            cache.block_tokens,
            clock,
        )
        self._sequences: dict[str, Sequence] = {}
        self._shares = TenantShares()
        self._waiting = WaitingQueue(self._shares)
        self._running: list[Sequence] = []  # by rank
        self._next_ticket = 0

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def has_work(self) -> bool:
        return bool(self._sequences)

    def submit(self, request: SequenceSpec, retry_after_s: float = 1.0) -> None:
        """Puts a request at the end of the waiting queue.

        Raises QueueFull when the waiting prompts hold too many tokens, ResourceExhausted for a request that
        could not even run alone, InvalidRequest for a priority that would be ignored.
        """
        assert request.request_id not in self._sequences
        assert request.prompt_ids
        self._require_policy(request.priority)
        tenant = request.tenant if self._config.fair_tenants else None
        sequence = Sequence(request, self._next_ticket, self._clock(), tenant)
        needed = self._cache.blocks_for(sequence.max_total_tokens)
        if needed > self._cache.num_blocks:
            raise ResourceExhausted("KV blocks", needed, self._cache.num_blocks, "lower max_tokens")
        waiting_tokens = self._waiting.num_tokens + len(request.prompt_ids)
        if len(self._waiting) and waiting_tokens > self._config.max_waiting_tokens:
            raise QueueFull(
                self._waiting.num_tokens, self._config.max_waiting_tokens, retry_after_s, unit="tokens"
            )
        self._next_ticket += 1
        self._sequences[request.request_id] = sequence
        self._shares.join(tenant)
        self._waiting.push(sequence)

    def update_priority(self, request_id: str, priority: int) -> None:
        """From the next step on an active request counts as if it had come with this priority.

        Raises InvalidRequest when priorities would be ignored.
        """
        self._require_policy(priority)
        sequence = self._sequences[request_id]
        if sequence in self._running:
            sequence.priority = priority
            self._running.sort(key=lambda running: running.rank)
        else:
            self._waiting.remove(sequence)
            sequence.priority = priority
            self._waiting.push(sequence)

    def draft_wishes(self) -> list[DraftWish]:
        """Who could take drafted tokens in the next step, if nothing changes until then."""
        speculation = self._speculation
        if speculation is None:
            return []
        return [
            DraftWish(
                sequence.request_id,
                sequence.token_ids,
                min(sequence.most_drafts, speculation.num_tokens),
                sequence.choice_after,
            )
            for sequence in self._running
            if sequence.is_decoding and sequence.most_drafts > 0
        ]

    def schedule(self, drafts: Mapping[str, tuple[int, ...]] = _NO_DRAFTS) -> StepPlan | None:
        """The next step, or None when there is nothing to do. ``drafts``: tokens to try, by request."""
        budget = TokenBudget(self._config.max_num_batched_tokens)
        is_filling = self._fill_first.holds_decodes(self._running, len(self._waiting))
        decodes = [] if is_filling else self._decode_parts(budget, drafts)
        self._admit_waiting()
        prefills = self._prefill_parts(budget, decodes)
        if is_filling and not prefills:
            decodes = self._decode_parts(budget, drafts)
        if not decodes and not prefills:
            return None
        return StepPlan((*decodes, *prefills), sum(len(part.token_ids) for part in prefills))

    def predict(self, plan: StepPlan) -> float:
        """Seconds that a step of the plan would take on all processors."""
        return self._pace.predict(plan.parts)

    def learn(self, parts: tuple[SequencePart, ...], seconds: float) -> None:
        """A step of ``parts`` took ``seconds``; the next ones are planned by it."""
        self._pace.learn(parts, seconds)

    def commit(self, parts: Iterable[SequencePart], tokens: Iterable[SampledToken]) -> None:
        """Notes what was computed and chosen. Planned parts that are not among ``parts`` stay to be done.

        ``tokens`` are those that count: of a part with drafts, no more than what follows a wrong one.
        """
        chosen: dict[str, list[SampledToken]] = {}
        for token in tokens:
            chosen.setdefault(token.request_id, []).append(token)
        num_drafted = num_accepted = 0
        for part in parts:
            answers = chosen.get(part.request_id, _NO_TOKENS)
            sequence = self._sequences[part.request_id]
            self._note_computed(sequence, part, answers)
            if part.num_drafts:
                token_ids = (token.token_id for token in answers)
                num_right = sum(map(eq, part.token_ids[-part.num_drafts :], token_ids))
                sequence.draft_use = sequence.draft_use.plus(part.num_drafts, num_right)
                num_drafted += part.num_drafts
                num_accepted += num_right
        if num_drafted:
            if self._speculation is not None:
                self._speculation.accepted(num_accepted)
            self._observers.on(TokensDrafted(num_drafted, num_accepted))

    def finish(self, request_id: str) -> None:
        """Forgets a request in any phase and gives its blocks back."""
        sequence = self._sequences.pop(request_id)
        self._learn_length(sequence)
        if sequence in self._running:
            self._stop_running(sequence)
        else:
            self._waiting.remove(sequence)
            self._rendezvous.leave(sequence)
        self._shares.leave(sequence.tenant)

    def cache_use(self, request_id: str) -> CacheUse:
        """What of an active request's prompt was not computed but found."""
        return self._sequences[request_id].cache_use

    def draft_use(self, request_id: str) -> DraftUse:
        """What became of the tokens that were drafted for an active request."""
        return self._sequences[request_id].draft_use

    def snapshot(self) -> SchedulerSnapshot:
        """What is held between two steps; called by the engine's thread."""
        num_decoding = sum(sequence.is_decoding for sequence in self._running)
        return SchedulerSnapshot(
            num_waiting=len(self._waiting),
            num_waiting_tokens=self._waiting.num_tokens,
            num_prefilling=len(self._running) - num_decoding,
            num_decoding=num_decoding,
            num_blocks=self._cache.num_blocks,
            num_used_blocks=self._cache.num_used_blocks,
        )

    def _require_policy(self, priority: int) -> None:
        if priority and self._config.policy is not SchedulingPolicy.PRIORITY:
            raise InvalidRequest(
                f"{priority} would be ignored: requests are served as they come; leave it out, or set the "
                "scheduling policy to priority (--scheduling-policy)",
                param="priority",
            )

    def _decode_parts(self, budget: TokenBudget, drafts: Mapping[str, tuple[int, ...]]) -> list[SequencePart]:
        # Everybody's own token comes first.
        spare = TokenBudget(budget.remaining - len(self._running))
        parts = []
        for sequence in tuple(self._running):
            # An older request of this loop may have preempted this one.
            if not sequence.is_decoding:
                continue
            # Whoever has the blocks was promised them.
            table = self._cache.table_within(sequence.request_id, len(sequence.token_ids))
            if table is not None or self._make_room(sequence):
                parts.append(self._decode_part(sequence, table, drafts.get(sequence.request_id, ()), spare))
        budget.take(sum([len(part.token_ids) for part in parts]))
        return parts

    def _decode_part(
        self,
        sequence: Sequence,
        table: tuple[int, ...] | None,
        drafts: tuple[int, ...],
        spare: TokenBudget,
    ) -> SequencePart:
        """``table``: its blocks, if they have room for all known tokens."""
        num_remaining = sequence.num_remaining_tokens
        if num_remaining > 1:
            num_own = 1 + spare.take(num_remaining - 1)
            if num_own < num_remaining:
                return self._part(sequence, num_own)
        if drafts:
            drafts = self._fit(sequence, drafts, spare)
        if drafts or table is None:
            table = self._cache.grow(sequence.request_id, len(sequence.token_ids) + len(drafts))
        return sequence.decode_part(drafts, table)

    def _fit(self, sequence: Sequence, drafts: tuple[int, ...], spare: TokenBudget) -> tuple[int, ...]:
        """As many drafted tokens as there is room for; nobody gives way for them."""
        drafts = drafts[: spare.take(min(len(drafts), max(0, sequence.most_drafts)))]
        num_known = len(sequence.token_ids)
        if drafts and not self._promises.raise_to(
            sequence.request_id, self._cache.blocks_for(num_known + len(drafts))
        ):
            return drafts[: self._cache.blocks_for(num_known) * self._cache.block_tokens - num_known]
        return drafts

    def _make_room(self, sequence: Sequence) -> bool:
        """Promises room for every known token; False when the sequence itself had to give way."""
        needed = self._cache.blocks_for(len(sequence.token_ids))
        while not self._promises.raise_to(sequence.request_id, needed):
            last = self._running[-1]
            self._preempt(last)
            if last is sequence:
                return False
            # Room for growing on, or the next block would make somebody give way again.
            wanted = sequence.tokens_to_promise(self._output_lengths.expected)
            self._promises.raise_to(sequence.request_id, self._cache.blocks_for(wanted))
        return True

    def _learn_length(self, sequence: Sequence) -> None:
        if sequence.has_default_budget and sequence.num_generated_tokens:
            self._output_lengths.note(sequence.num_generated_tokens)

    def _preempt(self, sequence: Sequence) -> None:
        self._observers.on(RequestPreempted(sequence.request_id, sequence.num_computed_tokens))
        self._learn_length(sequence)
        self._stop_running(sequence)
        sequence.forget_computed()
        sequence.waiting_since = self._clock()
        self._waiting.push(sequence)

    def _stop_running(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._promises.withdraw(sequence.request_id)
        self._cache.publish_tail(sequence.request_id, sequence.token_ids, sequence.num_computed_tokens)
        self._cache.release(sequence.request_id)
        if self._states is not None:
            self._states.give_back(sequence.request_id)
        if self._speculation is not None:
            self._speculation.leave(sequence.request_id)
        self._rendezvous.leave(sequence)

    def _note_computed(self, sequence: Sequence, part: SequencePart, tokens: list[SampledToken]) -> None:
        ends_prefill = bool(part.choices) and not sequence.is_decoding
        sequence.take(part, tokens)
        if self._config.fair_tenants:
            self._shares.charge(sequence.tenant, GENERATED_TOKEN_COST * len(tokens))
        publish = self._cache.publish_tail if ends_prefill else self._cache.publish
        publish(sequence.request_id, sequence.token_ids, sequence.num_computed_tokens)

    def _admit_waiting(self) -> None:
        """Those who wait for a prefix that is being computed keep their places, and one among the running."""
        num_held, most = 0, self._config.max_running_requests
        if not self._waiting or len(self._running) >= most:
            return
        for sequence in self._waiting.candidates():
            if len(self._running) + num_held >= most:
                return
            if self._rendezvous.must_wait(sequence):
                num_held += 1
                continue
            match = self._cache.find_prefix(sequence.scope, sequence.ids_to_find())
            if not sequence.scores_prompt and self._rendezvous.try_to_hold(sequence, match.num_tokens):
                num_held += 1
            elif not self._admit(sequence, match):
                return

    def _admit(self, sequence: Sequence, match: PrefixMatch) -> bool:
        """Lets the request run from what was found of it; False, changing nothing, when there is no room."""
        num_tokens = sequence.tokens_to_promise(self._output_lengths.expected)
        num_blocks = self._cache.blocks_for(num_tokens)
        if not self._promises.has_room(num_blocks, match):
            return False
        if self._states is not None:
            if not self._states.has_room:
                return False
            sequence.state_slot = self._states.take(sequence.request_id)
        if not sequence.num_preemptions:
            sequence.cache_use = self._cache_use(sequence, match)
            self._shares.charge(sequence.tenant, len(sequence.token_ids) - match.num_tokens)
        self._cache.count_lookup(match)
        self._cache.adopt(sequence.request_id, sequence.scope, match)
        has_promise = self._promises.raise_to(sequence.request_id, num_blocks)
        assert has_promise, "there was room for it before"
        sequence.num_computed_tokens = match.num_tokens
        self._waiting.remove(sequence)
        insort(self._running, sequence, key=lambda running: running.rank)
        self._rendezvous.lead(sequence)
        waited_s = self._clock() - sequence.waiting_since
        recompute_tokens = max(0, sequence.num_computed_before - match.num_tokens)
        self._observers.on(RequestAdmitted(sequence.request_id, waited_s, recompute_tokens))
        return True

    def _cache_use(self, sequence: Sequence, match: PrefixMatch) -> CacheUse:
        if not sequence.wants_cache_explanation:
            return CacheUse(match.num_tokens)
        explanation = self._cache.explain_prefix(sequence.scope, sequence.ids_to_find())
        return CacheUse(match.num_tokens, explanation)

    def _prefill_parts(self, budget: TokenBudget, decodes: list[SequencePart]) -> list[SequencePart]:
        if len(decodes) == len(self._running):
            return []
        prefilling = [sequence for sequence in self._running if not sequence.is_decoding]
        if not prefilling:
            return []
        chunks = self._prefill_shares.divide(prefilling, budget.remaining, decodes)
        return [self._part(sequence, chunk) for sequence, chunk in chunks.items() if chunk]

    def _part(self, sequence: Sequence, num_tokens: int) -> SequencePart:
        table = self._cache.grow(sequence.request_id, sequence.num_computed_tokens + num_tokens)
        return sequence.part(num_tokens, table)
