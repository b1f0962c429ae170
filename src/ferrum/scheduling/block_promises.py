"""How many KV blocks the running requests have been promised, so that what is admitted can finish."""

from __future__ import annotations

from ferrum.cache.cache_manager import CacheManager
from ferrum.cache.prefix_match import PrefixMatch


class BlockPromises:
    """What was promised and is not yet held never exceeds what is free, so growth within a promise always
    finds a block. A block that several requests share is taken once.

    Mutated by the scheduler only. Every request that holds blocks has a promise.
    """

    def __init__(self, cache: CacheManager) -> None:
        self._cache = cache
        self._promised: dict[str, int] = {}
        self._num_promised = 0

    @property
    def num_unpromised(self) -> int:
        return self._cache.num_free_blocks - (self._num_promised - self._cache.num_table_blocks)

    def has_room(self, num_blocks: int, match: PrefixMatch) -> bool:
        """Whether a new request can be promised ``num_blocks`` in all, beginning with what was found."""
        return num_blocks - len(match.blocks) + match.num_waking <= self.num_unpromised

    def raise_to(self, request_id: str, num_blocks: int) -> bool:
        """Promises the request at least ``num_blocks`` in all; False, changing nothing, without them."""
        missing = num_blocks - self._promised.get(request_id, 0)
        if missing <= 0:
            return True
        if missing > self.num_unpromised:
            return False
        self._promised[request_id] = num_blocks
        self._num_promised += missing
        return True

    def withdraw(self, request_id: str) -> None:
        self._num_promised -= self._promised.pop(request_id, 0)
