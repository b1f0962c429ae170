"""Keeps control tokens out of what a caller sends: breaks their texts before a template sees them.

Knows nothing of templates' rules; the marker is taken out again when the rendered text is encoded.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ferrum.tokenization.control_tokens import ControlTokens


class ControlGuard:
    """Breaks control-token texts with ``marker``, a character that occurs in nothing the caller sent.

    A marker goes after every character that could begin a control token, not only into whole ones: templates
    cut pieces out of contents (``replace("/think", "")``), which could join the halves of one. Left whole are
    the ``literals`` that the template looks for itself, such as "</think>".
    """

    def __init__(self, controls: ControlTokens, literals: Collection[str], marker: str) -> None:
        self._controls = controls
        self._marker = marker
        # Letters begin too many ordinary words; their control tokens are only broken where they stand whole.
        firsts = {first for first in controls.first_characters if not first.isalnum() and not first.isspace()}
        kept = {text for text in literals if len(text) > 1 and self._may_stay_whole(text)}
        alternatives = [*map(re.escape, sorted(kept, key=len, reverse=True)), *map(re.escape, sorted(firsts))]
        self._pattern = re.compile("|".join(alternatives)) if firsts else None
        self._kept = kept

    def protect(self, value: Any) -> Any:
        """A copy of nested lists and objects in which every string is broken, keys included."""
        if isinstance(value, str):
            return self._break(value)
        if isinstance(value, Mapping):
            return {self.protect(key): self.protect(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.protect(item) for item in value]
        return value

    def _may_stay_whole(self, literal: str) -> bool:
        ends = {literal[start:] for start in range(len(literal))}
        return not ends & self._controls.beginnings and next(self._controls.matches(literal), None) is None

    def _break(self, text: str) -> str:
        text = self._break_edges(text)
        if self._pattern is not None:
            text = self._pattern.sub(self._mark_first, text)
        # Breaking one occurrence can leave another that overlapped it.
        while starts := [match.start for match in self._controls.matches(text)]:
            text = self._insert(text, [start + 1 for start in starts])
        return text

    def _mark_first(self, match: re.Match[str]) -> str:
        found = match.group()
        return found if found in self._kept else found + self._marker

    def _break_edges(self, text: str) -> str:
        """Breaks halves at the ends: the template may write the other half, as in "<|im_end|" and its ">"."""
        cuts: set[int] = set()
        for size in range(1, min(self._controls.longest, len(text) + 1)):
            if text[-size:] in self._controls.beginnings:
                cuts.add(len(text) - size + 1)
            if text[:size] in self._controls.endings:
                cuts.add(size - 1)
        return self._insert(text, sorted(cuts))

    def _insert(self, text: str, positions: Sequence[int]) -> str:
        """The text with a marker at each position; they ascend."""
        borders = [0, *positions, len(text)]
        return self._marker.join(text[start:end] for start, end in pairwise(borders))
