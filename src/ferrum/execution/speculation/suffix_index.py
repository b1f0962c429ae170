"""SuffixIndex: where the newest tokens of a sequence stood before, found without looking through it again."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

# Two equal tokens are the least to go by. Places beyond the newest ones are not looked at, and a match is not
# measured further than this: both bound what one token costs whatever the text.
_KEY_TOKENS = 2
_MOST_PLACES = 16
LONGEST_MATCH = 32


class Match(NamedTuple):
    """The last ``length`` tokens stood before ``position``, too; there the next token of that time lies."""

    position: int
    length: int


class SuffixIndex:
    """Grows with one sequence. Each pair of tokens leads to where it stood last, and from there further back.

    A hash chain as in Lempel and Ziv's compressors (RFC 1951, section 4): one dictionary entry for each
    different pair, one number for each token.
    """

    def __init__(self) -> None:
        self._newest: dict[int, int] = {}
        self._earlier = array("i", [0] * _KEY_TOKENS)  # [position] the place before it with the same key

    def extend(self, token_ids: Sequence[int]) -> None:
        """Takes in what ``token_ids``, which only ever grows, has more than at the last call."""
        newest, earlier = self._newest, self._earlier
        for position in range(len(earlier), len(token_ids)):
            key = token_ids[position - 2] << 32 | token_ids[position - 1]
            earlier.append(newest.get(key, 0))
            newest[key] = position

    def find(self, token_ids: Sequence[int]) -> Match | None:
        """The longest of the newest matches of the end of ``token_ids``, all of which was taken in."""
        end = len(token_ids)
        if end < _KEY_TOKENS:
            return None
        place = self._newest.get(token_ids[-2] << 32 | token_ids[-1], 0)
        best: Match | None = None
        for _ in range(_MOST_PLACES):
            if not place:
                break
            length = _common_length(token_ids, place, end)
            if best is None or length > best.length:
                best = Match(place, length)
                if length >= LONGEST_MATCH:
                    break
            place = self._earlier[place]
        return best


def _common_length(token_ids: Sequence[int], place: int, end: int) -> int:
    """How many tokens before ``place`` are those before ``end``; two at least are."""
    length, most = _KEY_TOKENS, min(place, LONGEST_MATCH)
    while length < most and token_ids[place - 1 - length] == token_ids[end - 1 - length]:
        length += 1
    return length
