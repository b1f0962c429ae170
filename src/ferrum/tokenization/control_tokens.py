"""Control tokens in template text: where they stand. Never used on a user's text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class ControlToken:
    """``strips_left`` / ``strips_right``: white space beside the token belongs to it and is dropped."""

    text: str
    token_id: int
    strips_left: bool = False
    strips_right: bool = False


@dataclass(frozen=True, slots=True)
class ControlMatch:
    """``text[start:end]`` is ``token``."""

    start: int
    end: int
    token: ControlToken


class ControlTokens:
    """The control tokens of a vocabulary, by text. Immutable but for what it works out once and keeps.

    Matching is leftmost, then longest. It looks only at places where some token's first character stands,
    because vocabularies with 6,000 control tokens exist and an alternation of all of them is slow. A token
    of a single character is never matched: no mark inside it could tell a template's from a user's.
    """

    def __init__(self, tokens: Mapping[str, ControlToken]) -> None:
        self._tokens = {text: token for text, token in tokens.items() if len(text) > 1}
        lengths: dict[str, set[int]] = {}
        for text in self._tokens:
            lengths.setdefault(text[:1], set()).add(len(text))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}

    @cached_property
    def first_characters(self) -> frozenset[str]:
        return frozenset(text[0] for text in self._tokens)

    @cached_property
    def beginnings(self) -> frozenset[str]:
        """Every text that a control token's text starts with, whole ones included."""
        return frozenset(text[:size] for text in self._tokens for size in range(1, len(text) + 1))

    @cached_property
    def endings(self) -> frozenset[str]:
        """Every text that a control token's text ends with, whole ones left out."""
        return frozenset(text[start:] for text in self._tokens for start in range(1, len(text)))

    @cached_property
    def longest(self) -> int:
        """Characters in the longest control token's text."""
        return max(map(len, self._tokens), default=0)

    def matches(self, text: str) -> Iterator[ControlMatch]:
        """Every occurrence, in order, none overlapping another."""
        position = 0
        starts = {first: text.find(first) for first in self._lengths}
        while True:
            ahead = [start for start in starts.values() if start >= 0]
            if not ahead:
                return
            start = min(ahead)
            match = self._match_at(text, start) if start >= position else None
            if match is not None:
                yield match
                position = match.end
            following = max(position, start + 1)
            for first, known in starts.items():
                if 0 <= known < following:
                    starts[first] = text.find(first, following)

    def _match_at(self, text: str, start: int) -> ControlMatch | None:
        for length in self._lengths[text[start]]:
            token = self._tokens.get(text[start : start + length])
            if token is not None:
                return ControlMatch(start, start + len(token.text), token)
        return None
