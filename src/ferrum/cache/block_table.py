"""BlockTable: the KV blocks of one request in token order, and how many of them others may find."""

from __future__ import annotations

from ferrum.cache.block_pool import BlockLease
from ferrum.cache.prefix_scope import PrefixScope
from ferrum.cache.prefix_tree import PrefixNode


class BlockTable:
    """The leases hold the blocks in order. Mutated by the CacheManager only.

    ``last_known`` is the node of the last block that the prefix cache knows, ``num_known`` how many it does.
    """

    __slots__ = ("blocks", "last_known", "leases", "num_known", "scope")

    def __init__(self, scope: PrefixScope) -> None:
        self.blocks: tuple[int, ...] = ()
        self.leases: list[BlockLease] = []
        self.scope = scope
        self.num_known = 0
        self.last_known: PrefixNode | None = None

    def append(self, lease: BlockLease) -> None:
        self.leases.append(lease)
        self.blocks += lease.blocks

    def exchange(self, block: int, for_block: int) -> None:
        """Another block of the same content takes the place of ``block``."""
        lease = next(lease for lease in self.leases if block in lease.blocks)
        lease.exchange(block, for_block)
        self.blocks = tuple(for_block if each == block else each for each in self.blocks)

    def release(self) -> None:
        """Last first; see BlockPool."""
        for lease in reversed(self.leases):
            lease.release()
