"""A cache manager with a prefix cache over blocks that hold tokens, and requests that compute by storing."""

from __future__ import annotations

from array import array

from ferrum.cache.block_pool import BlockPool
from ferrum.cache.cache_manager import CacheManager
from ferrum.cache.prefix_cache import PrefixCache
from ferrum.cache.prefix_match import PrefixMatch
from ferrum.cache.prefix_scope import PrefixScope
from ferrum.core.ledger import LifecycleLedger
from ferrum.testing.scripted_executor import ScriptedBlocks

BLOCK_TOKENS = 4


class Shelf:
    """``start`` admits a request, ``compute`` stores its tokens in its blocks and makes them known."""

    def __init__(self, num_blocks: int = 16) -> None:
        self.ledger = LifecycleLedger()
        self.pool = BlockPool(num_blocks, self.ledger)
        self.store = ScriptedBlocks({}, BLOCK_TOKENS)
        self.prefixes = PrefixCache("model", BLOCK_TOKENS, self.store)
        self.cache = CacheManager(self.pool, BLOCK_TOKENS, self.prefixes)
        self.tokens: dict[str, list[int]] = {}
        self.computed: dict[str, int] = {}

    def start(self, name: str, tokens: list[int], scope: PrefixScope | None = None) -> PrefixMatch:
        scope = scope or PrefixScope()
        match = self.cache.find_prefix(scope, tokens)
        self.cache.adopt(name, scope, match)
        self.tokens[name] = list(tokens)
        self.computed[name] = match.num_tokens
        return match

    def compute(self, name: str, num_tokens: int | None = None) -> None:
        tokens = self.tokens[name]
        end = len(tokens) if num_tokens is None else min(len(tokens), self.computed[name] + num_tokens)
        table = self.cache.grow(name, end)
        for position in range(self.computed[name], end):
            block = table[position // BLOCK_TOKENS]
            content = array("i", self.store.read_block(block))
            content[position % BLOCK_TOKENS] = tokens[position]
            self.store.write_block(block, content.tobytes())
        self.computed[name] = end
        publish = self.cache.publish_tail if end == len(tokens) else self.cache.publish
        publish(name, tokens, end)

    def read(self, name: str) -> list[int]:
        """The computed tokens as the request's blocks hold them."""
        table = self.cache.block_table(name)
        content = [token for block in table for token in array("i", self.store.read_block(block))]
        return content[: self.computed[name]]

    def end(self, name: str) -> None:
        self.cache.publish_tail(name, self.tokens.pop(name), self.computed.pop(name))
        self.cache.release(name)

    def answer(self, name: str, tokens: list[int], scope: PrefixScope | None = None) -> PrefixMatch:
        """A request from beginning to end."""
        match = self.start(name, tokens, scope)
        self.compute(name)
        assert self.read(name) == tokens
        self.end(name)
        return match
