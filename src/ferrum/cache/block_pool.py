"""Who holds which KV blocks. Knows block ids, references and leases, not tokens or requests' lives."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Protocol

from ferrum.core.errors import ResourceExhausted
from ferrum.core.lease import Lease
from ferrum.core.ledger import LifecycleLedger

KV_BLOCK = "kv_block"
DRAFT_KV_BLOCK = "draft_kv_block"


class BlockKeeper(Protocol):
    """Remembers blocks that nobody holds, until somebody needs them or their room."""

    def keep(self, block: int) -> bool:
        """The last holder let go; False: it is worth nothing, and free."""
        ...

    def hand_out(self, block: int) -> None:
        """A kept block is held again."""
        ...

    def forget(self, count: int) -> list[int]:
        """Gives up ``count`` kept blocks, those of least worth."""
        ...


class NoKeeper:
    """Keeps nothing."""

    def keep(self, block: int) -> bool:
        return False

    def hand_out(self, block: int) -> None:
        raise AssertionError("nothing was kept")

    def forget(self, count: int) -> list[int]:
        raise AssertionError("nothing was kept")


class BlockLease:
    """Blocks of the pool, in order, held until ``release`` (or ``rollback`` before ``commit``).

    ``exchange`` puts another block of the same content in the place of one.
    """

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

    def exchange(self, block: int, for_block: int) -> None:
        self._pool._hold((for_block,))
        self.blocks = tuple(for_block if each == block else each for each in self.blocks)
        self._pool._take_back((block,))


class BlockPool:
    """``num_blocks`` blocks with ids 0 to num_blocks − 1; always hands out the lowest free ids.

    A block may have several holders. One without any is free, whether or not its content is kept: kept
    content gives way when a block is asked for. Mutated by the engine's thread only. Lowest-first makes a
    run's block ids a function of its requests, so a trace can be replayed. ``resource`` is what the ledger
    calls them.
    """

    def __init__(self, num_blocks: int, ledger: LifecycleLedger, resource: str = KV_BLOCK) -> None:
        assert num_blocks >= 1, f"a pool has at least one block, not {num_blocks}"
        self.ledger = ledger
        self._resource = resource
        self.keeper: BlockKeeper = NoKeeper()
        self._empty = list(range(num_blocks))  # heap: free, and nothing is kept in them
        self._num_holders = [0] * num_blocks
        self._num_used = 0
        self.num_blocks = num_blocks

    @property
    def num_free(self) -> int:
        return self.num_blocks - self._num_used

    @property
    def num_used(self) -> int:
        return self._num_used

    def is_held(self, block: int) -> bool:
        return self._num_holders[block] > 0

    def reserve(self, owner: str, count: int) -> BlockLease:
        """Takes ``count`` blocks (at least 1) that nobody holds, or none at all.

        Raises ResourceExhausted when fewer are free.
        """
        if count > self.num_free:
            raise ResourceExhausted("KV blocks", needed=count, available=self.num_free)
        missing = count - len(self._empty)
        if missing > 0:
            for block in self.keeper.forget(missing):
                heapq.heappush(self._empty, block)
        blocks = tuple(heapq.heappop(self._empty) for _ in range(count))
        for block in blocks:
            self._num_holders[block] = 1
        self._num_used += count
        return BlockLease(self, Lease(self.ledger, owner, self._resource, count), blocks)

    def share(self, owner: str, blocks: Sequence[int]) -> BlockLease:
        """Becomes one more holder of ``blocks`` (at least 1), each held or kept."""
        self._hold(blocks)
        return BlockLease(self, Lease(self.ledger, owner, self._resource, len(blocks)), tuple(blocks))

    def _hold(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            if not self._num_holders[block]:
                self.keeper.hand_out(block)
                self._num_used += 1
            self._num_holders[block] += 1

    def _take_back(self, blocks: Sequence[int]) -> None:
        """Last first: what follows a block is kept less long than the block."""
        for block in reversed(blocks):
            self._num_holders[block] -= 1
            if not self._num_holders[block]:
                self._num_used -= 1
                if not self.keeper.keep(block):
                    heapq.heappush(self._empty, block)
