"""Which KV blocks each running request holds. Knows block counts and tokens, not scheduling."""

from __future__ import annotations

from ferrum.cache.block_pool import BlockLease, BlockPool
from ferrum.core.ledger import LifecycleLedger


class _BlockTable:
    """The blocks of one request in order, and the leases behind them."""

    __slots__ = ("blocks", "leases")

    def __init__(self) -> None:
        self.blocks: tuple[int, ...] = ()
        self.leases: list[BlockLease] = []


class CacheManager:
    """Grows a request's blocks with its tokens and gives them back together.

    Mutated by the engine's thread only. Growth is all or nothing: when the pool cannot give every block that
    is needed, nothing changes.
    """

    def __init__(self, pool: BlockPool, block_tokens: int) -> None:
        assert block_tokens >= 1, f"a block holds at least one token, not {block_tokens}"
        self._pool = pool
        self._tables: dict[str, _BlockTable] = {}
        self.block_tokens = block_tokens

    @property
    def ledger(self) -> LifecycleLedger:
        """Where the blocks are counted."""
        return self._pool.ledger

    @property
    def num_blocks(self) -> int:
        return self._pool.num_blocks

    @property
    def num_used_blocks(self) -> int:
        return self._pool.num_used

    @property
    def num_free_blocks(self) -> int:
        return self._pool.num_free

    @property
    def num_requests(self) -> int:
        return len(self._tables)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that ``num_tokens`` tokens of one request take."""
        return -(-num_tokens // self.block_tokens)

    def grow(self, request_id: str, num_tokens: int) -> tuple[int, ...]:
        """Gives the request room for its first ``num_tokens`` tokens; the answer is its whole block table.

        Raises ResourceExhausted, changing nothing, when the pool has too few free blocks.
        """
        table = self._tables.get(request_id) or _BlockTable()
        missing = self.blocks_for(num_tokens) - len(table.blocks)
        if missing > 0:
            lease = self._pool.reserve(request_id, missing)
            lease.commit()
            table.leases.append(lease)
            table.blocks += lease.blocks
            self._tables[request_id] = table
        return table.blocks

    def block_table(self, request_id: str) -> tuple[int, ...]:
        """The request's blocks in token order; empty when it holds none."""
        table = self._tables.get(request_id)
        return table.blocks if table else ()

    def release(self, request_id: str) -> int:
        """Gives every block of the request back; the answer is how many it held."""
        table = self._tables.pop(request_id, None)
        if table is None:
            return 0
        for lease in table.leases:
            lease.release()
        return len(table.blocks)
