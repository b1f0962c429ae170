"""Finds the stop string that occurs first in a text that arrives in pieces. Knows nothing of tokens.

The pieces are scanned with an Aho-Corasick automaton (Aho and Corasick 1975): its state is the longest end
of the text so far that could begin a stop string, which is exactly what must be held back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class MatchResult:
    """``emit`` is text that is safe to show; with ``is_match`` it ends just before the stop string."""

    emit: str
    is_match: bool = False


@dataclass(slots=True)
class _Node:
    depth: int
    children: dict[str, _Node] = field(default_factory=dict)
    fallback: _Node | None = None
    # Length of the longest stop string that the text ends with in this state; 0 = none.
    stop_length: int = 0


class StopMatcher:
    """Cuts a text before the stop string that starts first.

    What is emitted does not depend on how the text is cut into pieces: where one stop string ends inside
    another that began earlier, the earlier one is waited for. Mutates its state with every push; used by one
    request.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._root = _build(stops)
        self._node = self._root
        self._held = ""
        # Where in the held text the earliest complete stop string starts.
        self._match_start: int | None = None

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
                start = position - self._node.stop_length
                self._match_start = start if self._match_start is None else min(start, self._match_start)
            if self._match_start is not None and pending_start >= self._match_start:
                return self._finish(self._match_start)
        keep_from = len(self._held) - self._node.depth
        emit, self._held = self._held[:keep_from], self._held[keep_from:]
        if self._match_start is not None:
            self._match_start -= keep_from
        return MatchResult(emit)

    def flush(self) -> MatchResult:
        """The text has ended: what was held back comes out, up to a stop string that is complete in it."""
        if self._match_start is not None:
            return self._finish(self._match_start)
        emit, self._held, self._node = self._held, "", self._root
        return MatchResult(emit)

    def _finish(self, start: int) -> MatchResult:
        emit, self._held, self._match_start, self._node = self._held[:start], "", None, self._root
        return MatchResult(emit, is_match=True)

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
