"""Speculation: which drafted tokens the next step computes. It decides what pays, not what answers say."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from ferrum.core.drafting import Chances, Drafter, DraftWish
from ferrum.scheduling.step_pace import StepPace

# A draft must promise this much more than it costs: both are estimates, and rows take time in Python, too.
_MARGIN = 1.3

_log = logging.getLogger("ferrum.scheduling")


class Speculation:
    """Takes those guesses that make tokens come faster, by what steps are predicted to cost and how often
    guesses were right: the surest of all requests first, as long as one more row of the step yields tokens
    faster than the step does without it. So requests whose guesses are wrong, and steps that are busy
    computing already, draft less, down to nothing.

    At most ``most_rows`` in one step. Called by the engine's thread, without its lock: a draft model takes
    its time. A drafter that fails is not asked again; the answers do not need it.
    """

    def __init__(self, drafter: Drafter, pace: StepPace, num_tokens: int, most_rows: int) -> None:
        self._drafter = drafter
        self._pace = pace
        self._most_rows = most_rows
        self._has_failed = False
        self.num_tokens = num_tokens

    def draft(self, wishes: Sequence[DraftWish]) -> Mapping[str, tuple[int, ...]]:
        """Drafted tokens by request, for the step that decodes these; none for most of them is usual."""
        if not wishes or self._has_failed:
            return {}
        try:
            chances = self._drafter.chances(wishes)
            if not any(chances):
                return {}
            drafts = self._drafter.draft(wishes, self._counts(wishes, chances))
        except Exception:
            self._has_failed = True
            _log.exception("drafting tokens failed; from now on there is no speculation")
            return {}
        return {wish.request_id: draft for wish, draft in zip(wishes, drafts, strict=True) if draft}

    def leave(self, request_id: str) -> None:
        """The request stopped running."""
        self._drafter.leave(request_id)

    def close(self) -> None:
        self._drafter.close()

    def _counts(self, wishes: Sequence[DraftWish], chances: Sequence[Chances]) -> list[int]:
        """How many tokens to draft for each."""
        starts = [len(wish.token_ids) - 1 for wish in wishes]
        seconds = self._pace.predict_rows(starts)
        num_tokens = float(len(wishes))
        row_s = [self._pace.predict_row(start) + self._drafter.token_s for start in starts]
        counts = [0] * len(wishes)
        best = [(-each[0] / row_s[index], index) for index, each in enumerate(chances) if each]
        heapify(best)
        for _ in range(self._most_rows):
            if not best or -best[0][0] < _MARGIN * num_tokens / seconds:
                break
            _, index = heappop(best)
            num_tokens += chances[index][counts[index]]
            seconds += row_s[index]
            counts[index] += 1
            if counts[index] < len(chances[index]):
                heappush(best, (-chances[index][counts[index]] / row_s[index], index))
        return counts
