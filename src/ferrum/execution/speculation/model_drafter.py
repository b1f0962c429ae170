"""ModelDrafter: a smaller model says what the larger one is going to say."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ferrum.cache.cache_manager import CacheManager
from ferrum.core.drafting import Chances, DraftWish
from ferrum.core.errors import ResourceExhausted
from ferrum.core.step import SamplingInstruction, SequencePart, StepPlan
from ferrum.execution.executor import Executor
from ferrum.execution.speculation.draft_track import FIRST_CHANCE, DraftTrack
from ferrum.runtimes.protocol import StepAborted

# Tokens that one call computes for those whose tokens the draft model has not seen yet.
_MOST_CATCH_UP = 256
# Weight of the newest measurement in the seconds a drafted token takes.
_NEWEST_WEIGHT = 0.2
# A measurement counts no further than this factor: the system may have held the step up.
_LARGEST_FACTOR = 2.0
# What the seconds are multiplied by when drafting does not pay: nothing would measure them again otherwise.
_FORGETTING = 0.7
# Weight of the newest guess in how often the two models agree, which is what a new request begins with.
_PAIR_WEIGHT = 0.05


@dataclass(slots=True)
class _Draft:
    """One request while tokens are drafted for it; mutated by the ModelDrafter only."""

    wish: DraftWish
    track: DraftTrack
    count: int
    token_ids: tuple[int, ...] = ()


class ModelDrafter:
    """A Drafter over an executor of its own, whose KV blocks ``cache`` leases under the requests' names.

    It draws with the request's own seed and positions, so that two models that agree draw the same token.
    What it has computed for wrong drafts is computed again in its place. A request that it has no room for,
    whose context is longer than its own, or that has tokens it does not know, gets no drafts.
    ``vocabulary_size`` is that of the model it drafts for, ``step_tokens`` the most tokens that the executor
    computes in one step.
    """

    def __init__(
        self,
        executor: Executor,
        cache: CacheManager,
        vocabulary_size: int,
        step_tokens: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._executor = executor
        self._cache = cache
        self._vocabulary_size = vocabulary_size
        self._catch_up = min(_MOST_CATCH_UP, step_tokens)
        self._clock = clock
        self._tracks: dict[str, DraftTrack] = {}
        self._pair_chance = FIRST_CHANCE
        self.token_s = 0.0

    def prepare_startup(self) -> None:
        self._executor.prepare_startup()

    def chances(self, wishes: Sequence[DraftWish]) -> list[Chances]:
        return [self._chances_of(wish) for wish in wishes]

    def draft(self, wishes: Sequence[DraftWish], counts: Sequence[int]) -> list[tuple[int, ...]]:
        drafts = [
            _Draft(wish, self._tracks[wish.request_id], count)
            for wish, count in zip(wishes, counts, strict=True)
        ]
        for draft in drafts:
            num_tokens = len(draft.wish.token_ids)
            if not draft.count and not draft.track.is_paused(num_tokens):
                draft.track.pause(num_tokens)
                self.token_s *= _FORGETTING
        try:
            self._draft(self._caught_up(drafts))
        except StepAborted:
            return [()] * len(wishes)
        return [draft.token_ids for draft in drafts]

    def leave(self, request_id: str) -> None:
        if self._tracks.pop(request_id, None) is not None:
            self._cache.release(request_id)

    def close(self) -> None:
        for request_id in tuple(self._tracks):
            self.leave(request_id)
        self._executor.close()

    def _chances_of(self, wish: DraftWish) -> Chances:
        track = self._tracks.setdefault(wish.request_id, DraftTrack(self._pair_chance))
        for is_right in track.go_on(wish.token_ids):
            self._pair_chance += _PAIR_WEIGHT * (is_right - self._pair_chance)
        num_tokens = len(wish.token_ids)
        # The last drafted token is not computed, so it needs no place.
        most = min(wish.most, self._executor.capacity.context_length + 1 - num_tokens)
        if most < 1 or track.is_paused(num_tokens):
            return ()
        return tuple(track.chance**count for count in range(1, most + 1))

    def _caught_up(self, drafts: Sequence[_Draft]) -> list[_Draft]:
        """Those of whom only few tokens are left to compute; a piece of the others' is computed."""
        ready: list[_Draft] = []
        pieces: list[SequencePart] = []
        budget = self._catch_up
        for draft in drafts:
            if not draft.count:
                continue
            num_tokens = len(draft.wish.token_ids)
            missing = num_tokens - draft.track.num_known
            if not self._can_read(draft):
                draft.track.pause(num_tokens)
            elif missing <= budget and self._has_room(draft.wish, draft.count):
                budget -= missing
                ready.append(draft)
            elif budget and self._has_room(draft.wish, 0):
                piece = self._part(draft, min(budget, missing - 1))
                pieces.append(piece)
                budget -= len(piece.token_ids)
        if pieces:
            self._executor.execute(StepPlan(tuple(pieces)))
            for piece in pieces:
                self._tracks[piece.request_id].num_known += len(piece.token_ids)
        return ready

    def _draft(self, drafts: list[_Draft]) -> None:
        """One token for each in every step: what is missing and the first, then on from the last."""
        for depth in range(max((draft.count for draft in drafts), default=0)):
            active = [draft for draft in drafts if len(draft.token_ids) == depth < draft.count]
            if not active:
                break
            started = self._clock()
            parts = tuple(self._part(draft, None) for draft in active)
            chosen = self._executor.execute(StepPlan(parts)).tokens
            for draft, token in zip(active, chosen, strict=True):
                # Ids that only fill the draft's vocabulary up mean nothing to the model.
                if token.token_id < self._vocabulary_size:
                    draft.token_ids += (token.token_id,)
                    draft.track.guessed(draft.wish.token_ids, draft.token_ids)
            if depth:
                self._note_seconds((self._clock() - started) / len(active))

    def _part(self, draft: _Draft, num_tokens: int | None) -> SequencePart:
        """The next ``num_tokens`` without a choice, or all that are left with one."""
        wish, track = draft.wish, draft.track
        start = len(wish.token_ids) + len(draft.token_ids) - 1 if draft.token_ids else track.num_known
        ids = draft.token_ids[-1:] if draft.token_ids else tuple(wish.token_ids[start:])
        choices: tuple[SamplingInstruction, ...] = ()
        if num_tokens is None:
            choices = (self._readable(wish.choice_after(draft.token_ids)),)
        else:
            ids = ids[:num_tokens]
        table = self._cache.block_table(wish.request_id)
        return SequencePart(wish.request_id, ids, start, table, choices)

    def _readable(self, choice: SamplingInstruction) -> SamplingInstruction:
        """The same choice over the draft's vocabulary, whose end may be filled up to another length."""
        choice = replace(choice, logprobs=None)
        size = self._executor.capacity.vocabulary_size
        if size == self._vocabulary_size:
            return choice
        if choice.mask is not None:
            mask = np.zeros(-(-size // 32), np.uint32)
            num_words = min(len(mask), len(choice.mask))
            mask[:num_words] = choice.mask[:num_words]
            choice = replace(choice, mask=mask)
        return replace(choice, rules=None)

    def _can_read(self, draft: _Draft) -> bool:
        unseen = draft.wish.token_ids[draft.track.num_known :]
        return max(unseen, default=0) < self._executor.capacity.vocabulary_size

    def _has_room(self, wish: DraftWish, num_drafts: int) -> bool:
        """Blocks for the known tokens and for all drafted ones but the last."""
        try:
            self._cache.grow(wish.request_id, len(wish.token_ids) + max(0, num_drafts - 1))
        except ResourceExhausted:
            return False
        return True

    def _note_seconds(self, seconds: float) -> None:
        if not self.token_s:
            self.token_s = seconds
        self.token_s += _NEWEST_WEIGHT * (min(seconds, _LARGEST_FACTOR * self.token_s) - self.token_s)
