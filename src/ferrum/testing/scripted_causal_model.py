"""A CausalModel without weights: its logits depend on every token of a sequence and on nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from weakref import WeakSet

import numpy as np

from ferrum.core.arrays import FloatArray
from ferrum.runtimes.causal_model import CacheObject


class ScriptedCache:
    """The tokens of one sequence."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []


class ScriptedCausalModel:
    """Deterministic. ``forwards`` keeps the tokens of every pass; ``caches`` are those that somebody holds.

    ``before_forward`` sees the tokens first and may block or raise; the cache is then half written.
    ``takes_chunks`` False: several tokens after a prefix give wrong logits, as some architectures do.
    """

    def __init__(
        self,
        vocabulary_size: int = 258,
        context_length: int | None = 256,
        *,
        takes_chunks: bool = True,
        before_forward: Callable[[Sequence[int]], None] | None = None,
    ) -> None:
        self.arithmetic = "scripted"
        self.vocabulary_size = vocabulary_size
        self.context_length = context_length
        self.before_forward = before_forward
        self.forwards: list[tuple[int, ...]] = []
        self.caches: WeakSet[ScriptedCache] = WeakSet()
        self.is_closed = False
        self._takes_chunks = takes_chunks

    def new_cache(self) -> CacheObject:
        cache = ScriptedCache()
        self.caches.add(cache)
        return cache

    def forward(self, token_ids: Sequence[int], cache: CacheObject) -> FloatArray:
        assert isinstance(cache, ScriptedCache)
        assert not self.is_closed, "forward after close"
        assert token_ids
        is_wrong = bool(cache.token_ids) and len(token_ids) > 1 and not self._takes_chunks
        cache.token_ids.append(token_ids[0])
        if self.before_forward is not None:
            self.before_forward(token_ids)
        cache.token_ids += token_ids[1:]
        self.forwards.append(tuple(token_ids))
        seed = hashlib.sha256(repr((cache.token_ids, is_wrong)).encode()).digest()
        draws = np.random.default_rng(np.frombuffer(seed, np.uint32)).standard_normal(self.vocabulary_size)
        return draws.astype(np.float32)

    def cache_bytes(self, cache: CacheObject) -> int:
        assert isinstance(cache, ScriptedCache)
        return 64 + 8 * len(cache.token_ids)

    def pass_bytes(self, num_tokens: int) -> int:
        return 16 * num_tokens

    def close(self) -> None:
        self.is_closed = True
