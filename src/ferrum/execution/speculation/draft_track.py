"""DraftTrack: what a draft model knows of one request, and how often it was right about it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from operator import eq

# The chance that a drafted token is right, before anything is known, and what the newest token counts.
FIRST_CHANCE = 0.7
_WEIGHT = 0.12
# A request whose drafts do not pay is left alone for so many tokens, then for twice as many, up to the most.
_FIRST_PAUSE, _LONGEST_PAUSE = 16, 4096


class DraftTrack:
    """Keys and values of the first ``num_known`` tokens, then of ``drafted`` ones, are in the draft's cache.

    Mutated by the ModelDrafter only.
    """

    __slots__ = ("_pause", "_resume_at", "chance", "drafted", "guesses", "num_guessed_after", "num_known")

    def __init__(self, chance: float) -> None:
        self.num_known = 0
        self.drafted: tuple[int, ...] = ()
        self.guesses: tuple[int, ...] = ()
        self.num_guessed_after = 0
        self.chance = chance
        self._pause = _FIRST_PAUSE
        self._resume_at = 0

    def go_on(self, token_ids: Sequence[int]) -> list[bool]:
        """Takes note of the tokens that came: what they say of the last guesses, and what is still good.

        Which of the guesses were right, up to the first that was not.
        """
        verdicts: list[bool] = []
        came = token_ids[self.num_guessed_after : self.num_guessed_after + len(self.guesses)]
        for guess, token_id in zip(self.guesses, came, strict=False):
            verdicts.append(guess == token_id)
            self.chance += _WEIGHT * (verdicts[-1] - self.chance)
            if not verdicts[-1]:
                break
        self.guesses = ()
        self.num_known += _num_equal(self.drafted, token_ids[self.num_known :])
        # Something is left to compute even when no token came: the logits after the last are needed.
        self.num_known = min(self.num_known, len(token_ids) - 1)
        self.drafted = ()
        return verdicts

    def guessed(self, token_ids: Sequence[int], guesses: tuple[int, ...]) -> None:
        """All of ``token_ids`` and all guesses but the last, which nothing follows, were computed."""
        self.num_known, self.num_guessed_after = len(token_ids), len(token_ids)
        self.guesses, self.drafted = guesses, guesses[:-1]

    def is_paused(self, num_tokens: int) -> bool:
        return num_tokens < self._resume_at

    def pause(self, num_tokens: int) -> None:
        """Drafting did not pay; after the pause it is tried again as if nothing were known."""
        self._resume_at = num_tokens + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self.chance = FIRST_CHANCE


def _num_equal(some: Sequence[int], others: Sequence[int]) -> int:
    """How many tokens both begin with."""
    return sum(takewhile(bool, map(eq, some, others)))
