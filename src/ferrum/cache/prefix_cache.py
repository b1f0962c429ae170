"""PrefixCache: blocks found again by their tokens, kept after their holders have gone. Knows no requests."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from ferrum.cache.prefix_cache_status import PrefixCacheStatus
from ferrum.cache.prefix_scope import PrefixScope
from ferrum.cache.prefix_tree import MOST_SIBLINGS, PrefixNode, PrefixPath, PrefixTree, token_bytes
from ferrum.core.block_store import BlockStore


class PrefixCache:
    """The BlockKeeper of a pool: what it keeps is free room, and the least recently held goes first.

    Within a chain the later block goes first, so a chain never has a hole: whoever holds a block holds all
    before it, and lets go of them after it. ``identity`` is the model's (plan, weights, numerics): content
    means nothing to another. Mutated by the CacheManager and its pool.
    """

    def __init__(self, identity: str, block_tokens: int, store: BlockStore) -> None:
        self._tree = PrefixTree(block_tokens)
        self._kept: OrderedDict[int, None] = OrderedDict()  # least recently held first
        self._num_hits = 0
        self._num_misses = 0
        self._num_saved_tokens = 0
        self._num_evictions = 0
        self.identity = identity
        self.block_tokens = block_tokens
        self.store = store
        # Asked now: numbers are still wanted when the store is closed.
        self._block_bytes = store.block_bytes

    def find(
        self, scope: PrefixScope, token_ids: Sequence[int], most_siblings: int | None = MOST_SIBLINGS
    ) -> PrefixPath:
        """What is there of a request's tokens, all but the last: its logits are still needed."""
        return self._tree.find(scope, token_bytes(token_ids[:-1]), most_siblings)

    def node_of(self, block: int) -> PrefixNode | None:
        return self._tree.node_of(block)

    def count_lookup(self, num_tokens: int) -> None:
        """A request that begins to run found ``num_tokens`` of its own."""
        if num_tokens:
            self._num_hits += 1
        else:
            self._num_misses += 1
        self._num_saved_tokens += num_tokens

    def enter(
        self, scope: PrefixScope, parent: PrefixNode | None, token_ids: Sequence[int], block: int
    ) -> PrefixNode:
        """Makes a whole block known; the answer is the node of these tokens, perhaps with another block."""
        tokens = token_bytes(token_ids)
        self.leave(block)
        return self._tree.child(scope, parent, tokens) or self._tree.add(scope, parent, tokens, block)

    def enter_tail(
        self, scope: PrefixScope, parent: PrefixNode | None, token_ids: Sequence[int], block: int
    ) -> None:
        """Makes the first tokens of a block known that is not whole, unless a newer one begins with them."""
        tokens = token_bytes(token_ids)
        self.leave(block)
        if not self._tree.holds(scope, parent, tokens):
            self._tree.add(scope, parent, tokens, block)

    def leave(self, block: int) -> None:
        """Makes an unfinished block unknown; nothing happens when it is not known."""
        if block in self._tree:
            self._tree.remove(block)

    def keep(self, block: int) -> bool:
        if block not in self._tree:
            return False
        self._kept[block] = None
        return True

    def hand_out(self, block: int) -> None:
        del self._kept[block]

    def forget(self, count: int) -> list[int]:
        blocks = [self._kept.popitem(last=False)[0] for _ in range(count)]
        for block in blocks:
            self._tree.remove(block)
        self._num_evictions += count
        return blocks

    def status(self, num_pinned: int) -> PrefixCacheStatus:
        return PrefixCacheStatus(
            is_enabled=True,
            hits=self._num_hits,
            misses=self._num_misses,
            evictions=self._num_evictions,
            saved_prefill_tokens=self._num_saved_tokens,
            entries=len(self._tree),
            cached_tokens=self._tree.num_tokens,
            num_bytes=len(self._tree) * self._block_bytes,
            pinned_blocks=num_pinned,
        )
