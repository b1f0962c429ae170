"""NgramDrafter: guesses that a text goes on as it did the last time it came by here."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from ferrum.core.drafting import Chances, DraftWish
from ferrum.execution.speculation.suffix_index import LONGEST_MATCH, Match, SuffixIndex

# Matches of these lengths, or from one to below the next, are thought alike: the longer, the surer. What one
# is worth is learned of each request by itself, from the first chances on.
_LENGTHS = (2, 3, 4, 6, 9, 16)
_FIRST_CHANCES = (0.25, 0.4, 0.5, 0.6, 0.75, 0.85)
# The first guesses count for much, and the latest always for this much at least.
_FIRST_WEIGHT, _LEAST_WEIGHT = 0.2, 0.04
# A match this long is followed; a shorter one gives way to a longer one elsewhere.
_FOLLOWED_LENGTH = 8


class _Track:
    """What is known of one request: its index, the match it follows, and how often matches were right."""

    __slots__ = ("chances", "index", "match", "num_guesses", "num_seen")

    def __init__(self) -> None:
        self.index = SuffixIndex()
        self.match: Match | None = None
        self.num_seen = 0
        self.chances = list(_FIRST_CHANCES)
        self.num_guesses = [0] * len(_LENGTHS)

    def go_on(self, token_ids: Sequence[int]) -> None:
        """Learns from the tokens that came, drafted or not, and finds where they stood before."""
        match = self.match
        for position in range(self.num_seen, len(token_ids)):
            if match is None:
                break
            is_right = token_ids[match.position] == token_ids[position]
            self._learn(match.length, float(is_right))
            match = Match(match.position + 1, min(match.length + 1, LONGEST_MATCH)) if is_right else None
        self.num_seen = len(token_ids)
        self.index.extend(token_ids)
        if match is None or match.length < _FOLLOWED_LENGTH:
            match = self.index.find(token_ids)
        self.match = match

    def chances_of(self, most: int) -> Chances:
        """Each token that turns out right makes the match longer, and the next one surer."""
        if self.match is None:
            return ()
        chance, falling = 1.0, []
        for length in range(self.match.length, self.match.length + most):
            chance *= self.chances[_bucket(length)]
            falling.append(chance)
        return tuple(falling)

    def _learn(self, length: int, outcome: float) -> None:
        bucket = _bucket(length)
        weight = max(_LEAST_WEIGHT, _FIRST_WEIGHT / (1 + self.num_guesses[bucket] * _FIRST_WEIGHT))
        self.chances[bucket] += weight * (outcome - self.chances[bucket])
        self.num_guesses[bucket] += 1


class NgramDrafter:
    """A Drafter without a model: prompt lookup, in the answer too.

    Every token that comes shows whether the guess would have been right, whether or not it was made; so it is
    known for nothing when guessing would pay again.
    """

    token_s = 0.0

    def __init__(self) -> None:
        self._tracks: dict[str, _Track] = {}

    def prepare_startup(self) -> None:
        """Nothing can be wrong with copying."""

    def chances(self, wishes: Sequence[DraftWish]) -> list[Chances]:
        return [self._go_on(wish).chances_of(wish.most) for wish in wishes]

    def draft(self, wishes: Sequence[DraftWish], counts: Sequence[int]) -> list[tuple[int, ...]]:
        return [self._copy(wish, count) for wish, count in zip(wishes, counts, strict=True)]

    def leave(self, request_id: str) -> None:
        self._tracks.pop(request_id, None)

    def close(self) -> None:
        self._tracks.clear()

    def _go_on(self, wish: DraftWish) -> _Track:
        track = self._tracks.get(wish.request_id)
        if track is None:
            track = self._tracks[wish.request_id] = _Track()
        track.go_on(wish.token_ids)
        return track

    def _copy(self, wish: DraftWish, count: int) -> tuple[int, ...]:
        """What followed; where that is the end itself, the text repeats, and so does the guess."""
        match = self._tracks[wish.request_id].match
        if match is None or not count:
            return ()
        copied = tuple(wish.token_ids[match.position : match.position + count])
        while len(copied) < count:
            copied += copied[: count - len(copied)]
        return copied


def _bucket(length: int) -> int:
    return bisect_right(_LENGTHS, length) - 1
