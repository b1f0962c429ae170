"""A request as the scheduler sees it: tokens known, tokens computed, room promised. No text, no callers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ferrum.cache.prefix_scope import PrefixScope
from ferrum.core.cache_use import CacheUse
from ferrum.core.draft_use import DraftUse
from ferrum.core.sampling_params import SamplingParams
from ferrum.core.step import KnownTokens, SampledToken, SamplingInstruction, SequencePart
from ferrum.core.token_gate import TokenGate, forced_tokens, is_allowed
from ferrum.sampling.rule_history import RuleHistory
from ferrum.tokenization.decoded_prompt import DecodedPrompt
from ferrum.tokenization.stop_rules import StopRules

if TYPE_CHECKING:  # It brings the grammar engine, which most processes never need.
    from ferrum.constraints.constraint_gate import ConstraintGate

_SEED_MASK = 2**64 - 1


@dataclass(frozen=True, slots=True)
class SequenceSpec:
    """What the scheduler needs to know of a new request.

    ``max_tokens`` is resolved (the context's remainder when the caller named none, then
    ``is_budget_explicit`` is false), and so is ``seed``. ``scope``: whose cached blocks it may use;
    ``wants_cache_explanation``: and why it found no more in them. ``wants_token_trace``: its result carries
    evidence of its tokens. ``priority`` and ``tenant`` as in InferenceRequest. ``stops``: what ends it.
    ``gate``: which tokens may come, and ``rules``: how they are chosen, at the beginning of the answer;
    ``constraint`` is one of the gates in it, which knows when the answer is complete, and after a choice
    up to ``most_forced`` tokens follow at once where only one may come. ``logprobs`` and
    ``prompt_logprobs``: what steps are to find, whether or not the caller sees it. ``prompt_text`` where the
    answer needs it.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    max_tokens: int
    is_budget_explicit: bool
    sampling: SamplingParams
    seed: int
    scope: PrefixScope = field(default_factory=PrefixScope)
    wants_cache_explanation: bool = False
    wants_token_trace: bool = False
    priority: int = 0
    tenant: str | None = None
    stops: StopRules = field(default_factory=StopRules)
    gate: TokenGate | None = None
    constraint: ConstraintGate | None = None
    most_forced: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    prompt_text: DecodedPrompt | None = None
    rules: RuleHistory | None = None


Rank = tuple[int, int]
"""Priority and ticket: smaller ones are let in sooner, and give way later."""


class Sequence:
    """Mutable state of one request between submission and its end; mutated by the scheduler only.

    ``token_ids`` is the prompt and everything generated so far. The keys and values of the first
    ``num_computed_tokens`` are in the cache, and ``num_computed_before`` were when it was preempted;
    ``cache_use`` says what of the prompt was there before it ran, ``draft_use`` what became of tokens drafted
    for it.
    ``state_slot`` is the place of its recurrent state while it runs, for a model that has one.
    ``ticket`` orders requests by submission and never changes; by ``rank`` they are served. ``tenant`` is
    whose share it takes from, None where shares are not kept.
    """

    __slots__ = (
        "_draw",
        "_gate",
        "_num_forced",
        "_request",
        "_rules",
        "cache_use",
        "draft_use",
        "max_total_tokens",
        "num_computed_before",
        "num_computed_tokens",
        "num_preemptions",
        "priority",
        "request_id",
        "state_slot",
        "tenant",
        "ticket",
        "token_ids",
        "waiting_since",
    )

    def __init__(
        self, request: SequenceSpec, ticket: int, waiting_since: float, tenant: str | None = None
    ) -> None:
        self._request = request
        sampling = request.sampling
        # The first fields of every SamplingInstruction.
        self._draw = (
            sampling.temperature,
            sampling.top_k,
            sampling.top_p,
            sampling.min_p,
            request.seed & _SEED_MASK,
        )
        self._gate = request.gate
        self._num_forced = 0  # of the newest tokens, those that nobody chose
        self._rules = None if request.rules is None else request.rules.copy()
        self.priority = request.priority
        self.tenant = tenant
        self.request_id = request.request_id
        self.ticket = ticket
        self.waiting_since = waiting_since
        self.token_ids = list(request.prompt_ids)
        self.max_total_tokens = len(request.prompt_ids) + request.max_tokens
        self.num_computed_tokens = 0
        self.num_computed_before = 0
        self.cache_use = CacheUse()
        self.draft_use = DraftUse()
        self.num_preemptions = 0
        self.state_slot: int | None = None

    @property
    def rank(self) -> Rank:
        return self.priority, self.ticket

    @property
    def scope(self) -> PrefixScope:
        """Whose cached blocks it may use."""
        return self._request.scope

    @property
    def num_remaining_tokens(self) -> int:
        """Known tokens that are not computed yet; at least 1 while the request lives."""
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def is_decoding(self) -> bool:
        """True when only the newest generated token is left to compute, and what is forced after it."""
        num_tokens = len(self.token_ids)
        is_near_end = num_tokens - self.num_computed_tokens <= 1 + self._num_forced
        return is_near_end and num_tokens > len(self._request.prompt_ids)

    def tokens_to_promise(self, expected_output_tokens: int) -> int:
        """Tokens to keep room for: an explicit budget, or the expected part of a default one.

        A request that outgrew what was expected of it is promised as much again, and all there may be when it
        gave way twice, so that it soon need not give way for growing any more.
        """
        if not self.has_default_budget or self.num_preemptions > 1:
            return self.max_total_tokens
        output_tokens = max(expected_output_tokens, 2 * self.num_generated_tokens)
        return min(self.max_total_tokens, len(self._request.prompt_ids) + output_tokens)

    @property
    def has_default_budget(self) -> bool:
        """Whether it may write more than is expected of it."""
        return not self._request.is_budget_explicit

    @property
    def num_generated_tokens(self) -> int:
        return len(self.token_ids) - len(self._request.prompt_ids)

    @property
    def wants_cache_explanation(self) -> bool:
        return self._request.wants_cache_explanation

    @property
    def scores_prompt(self) -> bool:
        """Whether log-probabilities of its prompt's tokens are still to be found."""
        if self._request.prompt_logprobs is None:
            return False
        return max(self.num_computed_before, self.num_computed_tokens) < len(self._request.prompt_ids) - 1

    def ids_to_find(self) -> list[int]:
        """Known tokens of which the cache may hold all but the last."""
        if self.scores_prompt:
            # What is found in the cache has no logits any more: only what was scored already may be.
            return self.token_ids[: self.num_computed_before + 1]
        # With one token left, one that comes back would be a decode, and those are planned before it is here.
        return self.token_ids[:-1] if self.num_preemptions else self.token_ids

    def part(self, num_tokens: int, block_table: tuple[int, ...]) -> SequencePart:
        """The next ``num_tokens`` uncomputed tokens; asks for a new one when it reaches the last known."""
        start = self.num_computed_tokens
        end = start + num_tokens
        return SequencePart(
            request_id=self.request_id,
            token_ids=tuple(self.token_ids[start:end]),
            start_position=start,
            block_table=block_table,
            choices=(self.choice_after(),) if end == len(self.token_ids) else (),
            state_slot=self.state_slot,
            scored=self._known_after(start, end),
        )

    def decode_part(self, drafts: tuple[int, ...], block_table: tuple[int, ...]) -> SequencePart:
        """What is left to compute and drafted tokens after it, with a choice after its end and each draft.

        A drafted token that may not come where it stands is left out, and all after it.
        """
        start = self.num_computed_tokens
        token_ids = tuple(self.token_ids[start:])
        num_forced = len(token_ids) - 1
        own_choice = self._choice_at((), self._gate)
        choices = (own_choice, *self._choices_after(drafts)) if drafts else (own_choice,)
        num_drafts = len(choices) - 1
        token_ids += drafts[:num_drafts]
        # By place: names would cost as much again, and there is one of these for each token.
        return SequencePart(
            self.request_id,
            token_ids,
            start,
            block_table,
            choices,
            self.state_slot,
            None,
            num_drafts,
            num_forced,
        )

    def _choices_after(self, drafts: tuple[int, ...]) -> tuple[SamplingInstruction, ...]:
        """A choice after each drafted token, as far as they may come where they stand."""
        gate = self._gate
        choices: list[SamplingInstruction] = []
        for count, token_id in enumerate(drafts, 1):
            if gate is not None:
                if not is_allowed(gate.mask, token_id):
                    break
                gate = gate.after(token_id)
                if gate.error is not None:
                    break
            choices.append(self._choice_at(drafts[:count], gate))
        return tuple(choices)

    @property
    def most_drafts(self) -> int:
        """Drafted tokens after the known ones that could still count: one more is chosen after them."""
        if self._rules is not None and self._rules.has_mirostat:
            return 0
        return self.max_total_tokens - len(self.token_ids) - 1

    def take(self, part: SequencePart, tokens: Collection[SampledToken]) -> None:
        """A part of it was computed, and these tokens were chosen that go on with the known ones."""
        for token in tokens:
            self._append(token.token_id, token.mirostat_mu)
        # What was computed for drafts that were wrong is computed again, in its place.
        self.num_computed_tokens = min(
            part.start_position + len(part.token_ids), len(self.token_ids) - bool(part.choices)
        )
        if tokens and self._request.most_forced:
            room = self.max_total_tokens - len(self.token_ids)
            forced = forced_tokens(self._gate, min(self._request.most_forced, room))
            for token_id in forced:
                self._append(token_id, None)
            self._num_forced = len(forced)

    def _append(self, token_id: int, mirostat_mu: float | None) -> None:
        self.token_ids.append(token_id)
        if self._rules is not None:
            self._rules.take(token_id, mirostat_mu)
        if self._gate is not None:
            self._gate = self._gate.after(token_id)

    def num_scored(self, num_tokens: int) -> int:
        """Of its next ``num_tokens`` tokens, those whose following one is scored."""
        if self._known_after(self.num_computed_tokens, self.num_computed_tokens + num_tokens) is None:
            return 0
        return max(0, min(num_tokens, len(self._request.prompt_ids) - 1 - self.num_computed_tokens))

    def _known_after(self, start: int, end: int) -> KnownTokens | None:
        num_top = self._request.prompt_logprobs
        if num_top is None or end <= self.num_computed_before:
            return None
        following = self._request.prompt_ids[start + 1 : end + 1]
        return KnownTokens(following, num_top) if following else None

    def forget_computed(self) -> None:
        """Drops what the cache held; the tokens stay and are computed again."""
        self.num_computed_before = max(self.num_computed_before, self.num_computed_tokens)
        self.num_computed_tokens = 0
        self._num_forced = 0
        self.num_preemptions += 1

    def choice_after(self, drafts: tuple[int, ...] = ()) -> SamplingInstruction:
        """How the token is chosen that follows the known ones and ``drafts``."""
        gate = self._gate
        if gate is not None:
            for token_id in drafts:
                gate = gate.after(token_id)
        return self._choice_at(drafts, gate)

    def _choice_at(self, drafts: tuple[int, ...], gate: TokenGate | None) -> SamplingInstruction:
        rules = self._rules
        return SamplingInstruction(
            *self._draw,
            len(self.token_ids) + len(drafts),
            None if rules is None else rules.after(drafts).rules(),
            None if gate is None else gate.mask,
            self._request.logprobs,
        )
