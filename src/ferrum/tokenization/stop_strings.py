"""Finds the stop string that occurs first in a text that arrives in pieces. Knows nothing of tokens.

The pieces are scanned with an Aho-Corasick automaton (Aho and Corasick 1975): its state is the longest end
of the text so far that could begin a stop string, which is exactly what must be held back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class MatchResult(NamedTuple):
    """``emit`` is text that is safe to show; with ``stop`` it ends where that stop string begins."""

    emit: str
    stop: str | None = None

    @property
    def is_match(self) -> bool:
        return self.stop is not None


@dataclass(slots=True)
class _Node:
    depth: int
    children: dict[str, _Node] = field(default_factory=dict)
    fallback: _Node | None = None
    # Length of the longest stop string that the text ends with in this state; 0 = none.
    stop_length: int = 0


@dataclass(frozen=True, slots=True)
class _Span:
    start: int
    end: int


class StopMatcher:
    """Cuts a text before the stop string that starts first; of two that start there, the shorter one.

    What is emitted does not depend on how the text is cut into pieces: where one stop string ends inside
    another that began earlier, the earlier one is waited for. Mutates its state with every push; used by one
    request.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._root = _build(stops)
        self._node = self._root
        self._held = ""
        # The earliest complete stop string in the held text.
        self._match: _Span | None = None

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to look for: all text may be shown as it comes."""
        return not self._root.children

    def push(self, text: str) -> MatchResult:
        """Takes the next piece. After a match nothing more may be pushed."""
        if not self._root.children:
            return MatchResult(text)
        position = len(self._held)
        self._held += text
        while position < len(self._held):
            self._advance(self._held[position])
            position += 1
            pending_start = position - self._node.depth
            if self._node.stop_length:
                self._note(_Span(position - self._node.stop_length, position))
            if self._match is not None and pending_start >= self._match.start:
                return self._finish(self._match)
        return self._show(len(self._held) - self._node.depth)

    def pass_over(self, text: str) -> MatchResult:
        """Takes a piece in which no stop string may end; one that begins in it and ends later counts."""
        if not self._root.children:
            return MatchResult(text)
        for character in text:
            self._advance(character)
        self._held += text
        return self._show(len(self._held) - self._node.depth)

    def flush(self) -> MatchResult:
        """The text has ended: what was held back comes out, up to a stop string that is complete in it."""
        if self._match is not None:
            return self._finish(self._match)
        emit, self._held, self._node = self._held, "", self._root
        return MatchResult(emit)

    def _note(self, found: _Span) -> None:
        if self._match is None or found.start < self._match.start:
            self._match = found

    def _show(self, keep_from: int) -> MatchResult:
        emit, self._held = self._held[:keep_from], self._held[keep_from:]
        if self._match is not None:
            self._match = _Span(self._match.start - keep_from, self._match.end - keep_from)
        return MatchResult(emit)

    def _finish(self, match: _Span) -> MatchResult:
        emit, stop = self._held[: match.start], self._held[match.start : match.end]
        self._held, self._match, self._node = "", None, self._root
        return MatchResult(emit, stop)

    def _advance(self, character: str) -> None:
        node: _Node | None = self._node
        while node is not None and character not in node.children:
            node = node.fallback
        self._node = node.children[character] if node is not None else self._root


def _build(stops: Sequence[str]) -> _Node:
    root = _Node(depth=0)
    for stop in stops:
        node = root
        for character in stop:
            node = node.children.setdefault(character, _Node(depth=node.depth + 1))
        node.stop_length = len(stop)
    queue = deque([root])
    while queue:
        parent = queue.popleft()
        for character, child in parent.children.items():
            node_or_none = parent.fallback
            while node_or_none is not None and character not in node_or_none.children:
                node_or_none = node_or_none.fallback
            child.fallback = root if node_or_none is None else node_or_none.children[character]
            child.stop_length = max(child.stop_length, child.fallback.stop_length)
            queue.append(child)
    return root
