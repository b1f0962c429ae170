"""How far one answer has come in its grammar: which tokens may come next, and whether it may end there."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np
from llguidance import LLMatcher

from ferrum.constraints.engine_messages import one_line
from ferrum.core.errors import ConstraintTooComplex, FerrumError, ForbiddenToken
from ferrum.core.token_gate import is_allowed
from ferrum.core.token_rules import TokenMask

Written = tuple["Written", int] | None
"""The tokens of an answer, the last one at the outside; places share what they have in common."""


@dataclass(frozen=True, slots=True)
class AnswerReading:
    """What is the same at every place of an answer: how its tokens are spelled and its end is checked.

    ``look`` begins to look at the constrained part of a finished answer and says what is wrong with it; None:
    nobody but the grammar engine knows. ``delimiter`` separates a free part from the constrained one; None =
    all is constrained. ``is_json``: the constrained part is one JSON value.
    """

    look: Callable[[str], Future[str | None]] | None
    token_bytes: Callable[[int], bytes]
    end_ids: frozenset[int]
    every_token: TokenMask  # [num_words], all of the vocabulary
    delimiter: bytes | None
    is_json: bool


class ConstraintGate:
    """A TokenGate: one place of one answer. Asking twice for the place after a token gives the same object.

    The engine's state moves along with the first road that is taken; another one gets a copy of it. Used by
    one thread at a time.
    """

    __slots__ = (
        "_depth",
        "_following",
        "_reading",
        "_road",
        "_written",
        "error",
        "is_complete",
        "mask",
    )

    def __init__(
        self,
        road: _Road,
        reading: AnswerReading,
        mask: TokenMask,
        written: Written = None,
        error: FerrumError | None = None,
    ) -> None:
        self._road = road
        self._reading = reading
        self._written = written
        self._depth = road.depth
        self._following: dict[int, ConstraintGate] = {}
        self.mask: TokenMask | None = mask
        self.error: FerrumError | None = error
        self.is_complete = mask is reading.every_token

    @property
    def is_json(self) -> bool:
        return self._reading.is_json

    @property
    def may_end(self) -> bool:
        """Whether an answer that ends here is what the constraint says."""
        return self.error is None and self._own_road().engine.is_accepting()

    def after(self, token_id: int) -> ConstraintGate:
        known = self._following.get(token_id)
        if known is not None:
            return known
        if self.is_complete or self.error is not None:
            return self  # What follows a complete value is the end token.
        following = self._following[token_id] = self._step(token_id)
        return following

    def look(self) -> Future[str | None]:
        """Begins to look at an answer that ends here: what is wrong with it, None when it is what the
        constraint says.
        """
        if not self.may_end:
            return _known("it ended before its value was complete")
        return self._look_at(self._all_bytes())

    def look_at(self, text: str) -> Future[str | None]:
        """As ``look``, at an answer of which ``text`` is shown."""
        return self._look_at(text.encode("utf-8", "replace"))

    def _look_at(self, data: bytes) -> Future[str | None]:
        if self._reading.look is None:
            return _known(None)
        if self._reading.delimiter is not None:
            data = data.partition(self._reading.delimiter)[2].lstrip(b" \t\r\n")
        return self._reading.look(data.decode("utf-8", "replace"))

    def _step(self, token_id: int) -> ConstraintGate:
        if not is_allowed(self.mask, token_id):
            return self._failed(ForbiddenToken(token_id))
        road = self._own_road()
        mask = road.accept(token_id, self._reading.every_token)
        if mask is None:
            return self._failed(ConstraintTooComplex(road.failure()))
        return ConstraintGate(road, self._reading, mask, (self._written, token_id))

    def _own_road(self) -> _Road:
        """One whose engine stands at this place."""
        road = self._road
        return road if road.depth == self._depth else road.copy_at(self._depth)

    def _failed(self, error: FerrumError) -> ConstraintGate:
        nothing = np.zeros_like(self._reading.every_token)
        return ConstraintGate(self._road, self._reading, nothing, self._written, error)

    def _all_bytes(self) -> bytes:
        token_ids: list[int] = []
        written = self._written
        while written is not None:
            written, token_id = written
            if token_id not in self._reading.end_ids:
                token_ids.append(token_id)
        return b"".join(map(self._reading.token_bytes, reversed(token_ids)))


class _Road:
    """The engine's state after ``depth`` tokens. Mutated by the gates on it."""

    __slots__ = ("depth", "engine")

    def __init__(self, engine: LLMatcher, depth: int = 0) -> None:
        self.engine = engine
        self.depth = depth

    def accept(self, token_id: int, every_token: TokenMask) -> TokenMask | None:
        """Goes on by a token that is allowed: the mask of the next one, None when the engine gave up.

        A complete value allows everything.
        """
        if not self.engine.consume_token(token_id):
            return None
        self.depth += 1
        if self.engine.is_stopped():
            # A drafted token may be the last one: something has to be chosen after it, and nobody looks.
            return None if self.engine.is_error() else every_token
        mask = next_mask(self.engine, len(every_token))
        return None if self.engine.is_error() else mask

    def copy_at(self, depth: int) -> _Road:
        """Another road from an earlier place on."""
        engine = self.engine.deep_copy()
        engine.rollback(self.depth - depth)
        return _Road(engine, depth)

    def failure(self) -> str:
        return one_line(self.engine.get_error()) or "the grammar engine gave up"


def next_mask(engine: LLMatcher, num_words: int) -> TokenMask:
    """The tokens that may come next, [num_words]; the engine's own vocabulary may be shorter or longer."""
    words = np.frombuffer(engine.compute_bitmask(), np.uint32)
    if len(words) >= num_words:
        return words[:num_words]
    mask = np.zeros(num_words, np.uint32)
    mask[: len(words)] = words
    return mask


def first_gate(engine: LLMatcher, reading: AnswerReading, mask: TokenMask) -> ConstraintGate:
    """The beginning of an answer; ``engine`` is the answer's own, before its first token."""
    return ConstraintGate(_Road(engine), reading, mask)


def _known(problem: str | None) -> Future[str | None]:
    future: Future[str | None] = Future()
    future.set_result(problem)
    return future
