"""Speculation: which drafted tokens the next step computes. It decides what pays, not what answers say."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush

from ferrum.core.drafting import Chances, Drafter, DraftWish
from ferrum.scheduling.drafting_account import DraftingAccount
from ferrum.scheduling.step_pace import StepPace

# A draft must promise this much more than it costs: both are estimates, and rows take time in Python, too.
_MARGIN = 1.3
# No step of a real model is shorter; before anything was learned a prediction may be.
_SHORTEST_STEP_S = 1e-4

_log = logging.getLogger("ferrum.scheduling")


class Speculation:
    """Takes those guesses that make tokens come faster, by what steps are predicted to cost and how often
    guesses were right: the surest of all requests first, as long as one more row of the step yields tokens
    faster than the step does without it. So requests whose guesses are wrong, and steps that are busy
    computing already, draft less, down to nothing. What drafting loses all the same, while it is being found
    out that it does not pay, an account keeps to a small share of the time.

    At most ``most_rows`` in one step. Called by the engine's thread, without its lock: a draft model takes
    its time. A drafter that fails is not asked again; the answers do not need it.
    """

    def __init__(
        self,
        drafter: Drafter,
        pace: StepPace,
        num_tokens: int,
        most_rows: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._drafter = drafter
        self._pace = pace
        self._most_rows = most_rows
        self._clock = clock
        self._account = DraftingAccount()
        self._num_sequences = 0  # of the last step
        self._has_failed = False
        self.num_tokens = num_tokens

    def draft(self, wishes: Sequence[DraftWish]) -> Mapping[str, tuple[int, ...]]:
        """Drafted tokens by request, for the step that decodes these; none for most of them is usual."""
        if not wishes or self._has_failed:
            return {}
        self._num_sequences = len(wishes)
        self._account.earn()
        try:
            # Asked in any case: a drafter learns from what came.
            chances = self._drafter.chances(wishes)
            if not any(chances) or not self._account.is_open:
                return {}
            starts = [len(wish.token_ids) - 1 for wish in wishes]
            step_s = self._pace.predict_rows(starts)
            row_s = [self._pace.predict_row(start) for start in starts]
            started = self._clock()
            drafts = self._drafter.draft(wishes, self._counts(step_s, row_s, chances))
            drafting_s = self._clock() - started
        except Exception:
            self._has_failed = True
            _log.exception("drafting tokens failed; from now on there is no speculation")
            return {}
        rows_s = sum(len(draft) * each for draft, each in zip(drafts, row_s, strict=True))
        self._account.spend((drafting_s + rows_s) / max(step_s, _SHORTEST_STEP_S))
        return {wish.request_id: draft for wish, draft in zip(wishes, drafts, strict=True) if draft}

    def accepted(self, num_tokens: int) -> None:
        """So many drafted tokens of the last step were right."""
        self._account.save(num_tokens / self._num_sequences)

    def leave(self, request_id: str) -> None:
        """The request stopped running."""
        self._drafter.leave(request_id)

    def close(self) -> None:
        self._drafter.close()

    def _counts(self, step_s: float, row_s: Sequence[float], chances: Sequence[Chances]) -> list[int]:
        """How many tokens to draft for each; ``row_s``: what a row of each adds to a step of ``step_s``."""
        num_tokens, seconds = float(len(chances)), step_s
        token_s = [each + self._drafter.token_s for each in row_s]
        counts = [0] * len(chances)
        best = [(-each[0] / token_s[index], index) for index, each in enumerate(chances) if each]
        heapify(best)
        for _ in range(self._most_rows):
            if not best or -best[0][0] < _MARGIN * num_tokens / seconds:
                break
            _, index = heappop(best)
            num_tokens += chances[index][counts[index]]
            seconds += token_s[index]
            counts[index] += 1
            if counts[index] < len(chances[index]):
                heappush(best, (-chances[index][counts[index]] / token_s[index], index))
        return counts
