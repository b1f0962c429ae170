"""Tokens that are guessed before the model computes them, and who guesses. Knows no model and no step.

A guess never changes an answer: the model computes the guessed tokens in one step, chooses after each of them
what it would have chosen anyway, and the guesses count as far as they are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ferrum.core.step import SamplingInstruction

Chances = tuple[float, ...]
"""For each token that could be drafted, the estimated chance that it and all before it are right: falling."""


@dataclass(frozen=True, slots=True)
class DraftWish:
    """A request that could take up to ``most`` drafted tokens (at least 1) in the next step.

    ``token_ids`` is all there is, prompt and output; not to be changed or kept. ``choice_after`` says how the
    token is chosen that follows these and so many drafted ones.
    """

    request_id: str
    token_ids: Sequence[int]
    most: int
    choice_after: Callable[[tuple[int, ...]], SamplingInstruction]


class Drafter(Protocol):
    """Guesses tokens. Called by the engine's thread only; between two calls the answers went on.

    ``token_s``: seconds that guessing one token takes.
    """

    @property
    def token_s(self) -> float: ...

    def prepare_startup(self) -> None:
        """Called once, before the first request: proves that it works, or raises ModelError."""
        ...

    def chances(self, wishes: Sequence[DraftWish]) -> list[Chances]:
        """For each wish how far guessing is worth it; empty where it is not."""
        ...

    def draft(self, wishes: Sequence[DraftWish], counts: Sequence[int]) -> list[tuple[int, ...]]:
        """At most so many tokens for each of the wishes ``chances`` was just asked for; 0 = does not pay."""
        ...

    def leave(self, request_id: str) -> None:
        """The request stopped running: what is kept for it goes. One that is not known is no error."""
        ...

    def close(self) -> None:
        """Frees what it holds; idempotent."""
        ...
