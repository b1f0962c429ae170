"""Which KV blocks each running request holds. Knows block counts and tokens, not scheduling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ferrum.cache.block_pool import BlockKeeper, BlockPool
from ferrum.cache.block_table import BlockTable
from ferrum.cache.prefix_cache import PrefixCache
from ferrum.cache.prefix_cache_explanation import explain
from ferrum.cache.prefix_cache_status import PrefixCacheStatus
from ferrum.cache.prefix_match import PrefixMatch
from ferrum.cache.prefix_scope import PrefixScope
from ferrum.core.cache_use import CacheEnd, CacheExplanation
from ferrum.core.ledger import LifecycleLedger

_EVERYBODY = PrefixScope()
_NOTHING = PrefixMatch()


class CacheManager:
    """Grows a request's blocks with its tokens and gives them back together.

    With a ``prefix_cache``, whole blocks of equal tokens are shared between requests, running and finished.
    What nobody holds any more stays findable and is still free room. Mutated by the engine's thread only.
    Growth is all or nothing: when the pool cannot give every block that is needed, nothing changes.
    """

    def __init__(self, pool: BlockPool, block_tokens: int, prefix_cache: PrefixCache | None = None) -> None:
        assert block_tokens >= 1, f"a block holds at least one token, not {block_tokens}"
        self._pool = pool
        self._prefix_cache = prefix_cache
        self._tables: dict[str, BlockTable] = {}
        self._num_table_blocks = 0
        self.block_tokens = block_tokens
        if prefix_cache is not None:
            assert prefix_cache.block_tokens == block_tokens
            pool.keeper = prefix_cache

    def tell(self, keeper: BlockKeeper) -> None:
        """From now on ``keeper`` hears of blocks that nobody holds. Not with a prefix cache, which is one."""
        assert self._prefix_cache is None
        self._pool.keeper = keeper

    @property
    def ledger(self) -> LifecycleLedger:
        """Where the blocks are counted."""
        return self._pool.ledger

    @property
    def prefix_cache(self) -> PrefixCache | None:
        return self._prefix_cache

    @property
    def shares_prefixes(self) -> bool:
        return self._prefix_cache is not None

    @property
    def num_blocks(self) -> int:
        return self._pool.num_blocks

    @property
    def num_used_blocks(self) -> int:
        """Blocks that somebody holds; a shared one counts once."""
        return self._pool.num_used

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds, whether or not their content can still be found."""
        return self._pool.num_free

    @property
    def num_table_blocks(self) -> int:
        """The lengths of all block tables; a shared block counts once for each."""
        return self._num_table_blocks

    @property
    def num_requests(self) -> int:
        return len(self._tables)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that ``num_tokens`` tokens of one request take."""
        return -(-num_tokens // self.block_tokens)

    def find_prefix(self, scope: PrefixScope, token_ids: Sequence[int]) -> PrefixMatch:
        """How much of a request is there already; never all, since its last token's logits are needed."""
        if self._prefix_cache is None:
            return _NOTHING
        path = self._prefix_cache.find(scope, token_ids)
        blocks = tuple(node.block for node in path.nodes)
        return PrefixMatch(
            blocks=blocks,
            branch=path.branch.block if path.branch else None,
            num_tokens=len(blocks) * self.block_tokens + path.num_branch_tokens,
            num_waking=sum(not self._pool.is_held(block) for block in blocks),
        )

    def count_lookup(self, match: PrefixMatch) -> None:
        """Counts what a request found that begins to run."""
        if self._prefix_cache is not None:
            self._prefix_cache.count_lookup(match.num_tokens)

    def find_blocks(self, scope: PrefixScope, token_ids: Sequence[int]) -> PrefixMatch:
        """The whole blocks of ``token_ids`` that are there, the last one too."""
        match = self.find_prefix(scope, [*token_ids, 0])
        return replace(match, branch=None, num_tokens=len(match.blocks) * self.block_tokens)

    def explain_prefix(self, scope: PrefixScope, token_ids: Sequence[int]) -> CacheExplanation:
        """Why ``find_prefix`` finds no more, beside the nearest of all cached prompts."""
        if self._prefix_cache is None:
            return CacheExplanation(CacheEnd.DISABLED, len(token_ids), 0, 0, token_ids[0])
        found = self.find_prefix(scope, token_ids).num_tokens
        return explain(self._prefix_cache.find(scope, token_ids, most_siblings=None), token_ids, found)

    def adopt(self, request_id: str, scope: PrefixScope, match: PrefixMatch) -> None:
        """Begins a request's block table with what was found for it.

        ``match`` is fresh, and one block more than it wakes is free if it has a branch.
        """
        assert request_id not in self._tables
        table = BlockTable(scope)
        self._tables[request_id] = table
        if self._prefix_cache is None:
            return
        if match.blocks:
            lease = self._pool.share(request_id, match.blocks)
            lease.commit()
            table.append(lease)
            table.num_known = len(match.blocks)
            table.last_known = self._prefix_cache.node_of(match.blocks[-1])
        if match.branch is not None:
            # May forget the branch and hand out its very block: the content is then where it should be.
            lease = self._pool.reserve(request_id, 1)
            lease.commit()
            table.append(lease)
            if lease.blocks[0] != match.branch:
                self._prefix_cache.store.copy_block(match.branch, lease.blocks[0])
        self._num_table_blocks += len(table.blocks)

    def table_within(self, request_id: str, num_tokens: int) -> tuple[int, ...] | None:
        """The request's block table, if it has room for its first ``num_tokens`` tokens already."""
        table = self._tables.get(request_id)
        if table is None or len(table.blocks) * self.block_tokens < num_tokens:
            return None
        return table.blocks

    def grow(self, request_id: str, num_tokens: int) -> tuple[int, ...]:
        """Gives the request room for its first ``num_tokens`` tokens; the answer is its whole block table.

        Raises ResourceExhausted, changing nothing, when the pool has too few free blocks.
        """
        table = self._tables.get(request_id) or BlockTable(_EVERYBODY)
        missing = self.blocks_for(num_tokens) - len(table.blocks)
        if missing > 0:
            lease = self._pool.reserve(request_id, missing)
            lease.commit()
            table.append(lease)
            self._tables[request_id] = table
            self._num_table_blocks += missing
        return table.blocks

    def publish(self, request_id: str, token_ids: Sequence[int], num_computed: int) -> None:
        """Lets others find the whole blocks among the request's first ``num_computed`` tokens."""
        cache = self._prefix_cache
        if cache is None:
            return
        table, size = self._tables[request_id], self.block_tokens
        while (table.num_known + 1) * size <= num_computed:
            block, start = table.blocks[table.num_known], table.num_known * size
            node = cache.enter(table.scope, table.last_known, token_ids[start : start + size], block)
            if node.block != block:
                # Somebody computed the same meanwhile: one copy is enough.
                table.exchange(block, node.block)
            table.last_known = node
            table.num_known += 1

    def publish_tail(self, request_id: str, token_ids: Sequence[int], num_computed: int) -> None:
        """``publish``, and the beginning of the block that is not whole."""
        self.publish(request_id, token_ids, num_computed)
        table = self._tables.get(request_id)
        if self._prefix_cache is None or table is None:
            return
        start = table.num_known * self.block_tokens
        if start < num_computed:
            tail, block = token_ids[start:num_computed], table.blocks[table.num_known]
            self._prefix_cache.enter_tail(table.scope, table.last_known, tail, block)

    def block_table(self, request_id: str) -> tuple[int, ...]:
        """The request's blocks in token order; empty when it holds none."""
        table = self._tables.get(request_id)
        return table.blocks if table else ()

    def release(self, request_id: str) -> int:
        """Gives every block of the request back; the answer is how many it held."""
        table = self._tables.pop(request_id, None)
        if table is None:
            return 0
        self._num_table_blocks -= len(table.blocks)
        table.release()
        return len(table.blocks)

    def status(self, num_pinned: int = 0) -> PrefixCacheStatus:
        """``num_pinned``: blocks that their holders pin."""
        if self._prefix_cache is None:
            return PrefixCacheStatus(is_enabled=False)
        return self._prefix_cache.status(num_pinned)
