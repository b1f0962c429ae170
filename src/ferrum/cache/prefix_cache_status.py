"""How the prefix cache is doing, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PrefixCacheStatus:
    """A snapshot; counts are since the engine was built.

    hits, misses          admissions that found some, or none, of their tokens; a preempted request comes
                          back through one more
    saved_prefill_tokens  tokens that were found and not computed
    evictions             blocks that were forgotten because their room was needed
    entries               blocks that can be found by their tokens, and the tokens and bytes they hold
    pinned_blocks         those of them that stay until they are unpinned
    """

    is_enabled: bool
    hits: int = 0
    misses: int = 0
    evictions: int = 0
    saved_prefill_tokens: int = 0
    entries: int = 0
    cached_tokens: int = 0
    num_bytes: int = 0
    pinned_blocks: int = 0

    @property
    def hit_rate(self) -> float:
        """Share of the admissions that found something; 0 before the first."""
        return self.hits / max(1, self.hits + self.misses)
