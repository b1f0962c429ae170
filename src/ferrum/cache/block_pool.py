"""The free list of KV blocks. Knows block ids and leases, not tokens or requests' lives."""

from __future__ import annotations

import heapq

from ferrum.core.errors import ResourceExhausted
from ferrum.core.lease import Lease
from ferrum.core.ledger import LifecycleLedger

KV_BLOCK = "kv_block"


class BlockLease:
    """Some blocks of the pool, held until ``release`` (or ``rollback`` before ``commit``)."""

    __slots__ = ("_lease", "_pool", "blocks")

    def __init__(self, pool: BlockPool, lease: Lease, blocks: tuple[int, ...]) -> None:
        self._pool = pool
        self._lease = lease
        self.blocks = blocks

    def commit(self) -> None:
        self._lease.commit()

    def release(self) -> None:
        self._lease.release()
        self._pool._take_back(self.blocks)

    def rollback(self) -> None:
        self._lease.rollback()
        self._pool._take_back(self.blocks)


class BlockPool:
    """``num_blocks`` blocks with ids 0 to num_blocks − 1; always hands out the lowest free ids.

    Mutated by the engine's thread only. Lowest-first makes a run's block ids a function of its requests, so a
    trace can be replayed.
    """

    def __init__(self, num_blocks: int, ledger: LifecycleLedger) -> None:
        assert num_blocks >= 1, f"a pool has at least one block, not {num_blocks}"
        self.ledger = ledger
        self._free = list(range(num_blocks))  # heap
        self.num_blocks = num_blocks

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_used(self) -> int:
        return self.num_blocks - len(self._free)

    def reserve(self, owner: str, count: int) -> BlockLease:
        """Takes ``count`` blocks (at least 1), or none at all.

        Raises ResourceExhausted when fewer are free.
        """
        if count > len(self._free):
            raise ResourceExhausted("KV blocks", needed=count, available=len(self._free))
        lease = Lease(self.ledger, owner, KV_BLOCK, count)
        return BlockLease(self, lease, tuple(heapq.heappop(self._free) for _ in range(count)))

    def _take_back(self, blocks: tuple[int, ...]) -> None:
        for block in blocks:
            heapq.heappush(self._free, block)
