"""CausalModel: a language model that computes one sequence at a time and keeps a cache object of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ferrum.core.arrays import FloatArray

CacheObject = object
"""What a model remembers of one sequence. Nobody but the model looks into it; it is dropped, never closed."""


class CausalModel(Protocol):
    """Used by one thread at a time. ``context_length`` None: the architecture has no limit of its own.

    ``arithmetic`` names the program and precision that give the results.
    """

    @property
    def context_length(self) -> int | None: ...
    @property
    def vocabulary_size(self) -> int: ...
    @property
    def arithmetic(self) -> str: ...

    def new_cache(self) -> CacheObject:
        """The cache of a sequence without tokens."""
        ...

    def forward(self, token_ids: Sequence[int], cache: CacheObject) -> FloatArray:
        """Appends the tokens (at least one) to the cache's sequence.

        The answer is the logits [vocabulary], float32, after the last of them. When it raises, the cache may
        have any content.
        """
        ...

    def cache_bytes(self, cache: CacheObject) -> int:
        """How much memory the cache takes now."""
        ...

    def pass_bytes(self, num_tokens: int) -> int:
        """About how much memory a pass over ``num_tokens`` tokens takes while it runs, caches left out."""
        ...

    def close(self) -> None:
        """Frees the weights; idempotent."""
        ...
