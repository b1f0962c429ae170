"""Whatever starts, computes and ends: blocks hold what their requests computed, and none is lost."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from prefix_shelf import BLOCK_TOKENS, Shelf

from ferrum.cache.prefix_scope import PrefixScope

NUM_BLOCKS = 10
# Few different tokens, so that prompts often begin alike.
prompts = st.lists(st.integers(1, 2), min_size=1, max_size=14)
scopes = st.sampled_from([PrefixScope(), PrefixScope(salt="s")])


class PrefixCacheMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shelf = Shelf(NUM_BLOCKS)
        self.known_by: dict[str, PrefixScope] = {}
        self.num_started = 0

    @rule(tokens=prompts, scope=scopes)
    def start(self, tokens: list[int], scope: PrefixScope) -> None:
        match = self.shelf.cache.find_prefix(scope, tokens)
        assert match.num_tokens < len(tokens)
        room = match.num_waking + (match.branch is not None)
        if room <= self.shelf.cache.num_free_blocks:
            self.num_started += 1
            name = f"r{self.num_started}"
            self.shelf.start(name, tokens, scope)
            self.known_by[name] = scope

    @precondition(lambda self: self.shelf.tokens)
    @rule(choice=st.integers(0, 100), num_tokens=st.integers(1, 9))
    def compute(self, choice: int, num_tokens: int) -> None:
        name = self._chosen(choice)
        end = min(self.shelf.computed[name] + num_tokens, len(self.shelf.tokens[name]))
        missing = self.shelf.cache.blocks_for(end) - len(self.shelf.cache.block_table(name))
        if missing <= self.shelf.cache.num_free_blocks:
            self.shelf.compute(name, num_tokens)

    @precondition(lambda self: self.shelf.tokens)
    @rule(choice=st.integers(0, 100), token=st.integers(1, 2))
    def generate(self, choice: int, token: int) -> None:
        self.shelf.tokens[self._chosen(choice)].append(token)

    @precondition(lambda self: self.shelf.tokens)
    @rule(choice=st.integers(0, 100))
    def end(self, choice: int) -> None:
        name = self._chosen(choice)
        del self.known_by[name]
        self.shelf.end(name)
        self.shelf.ledger.close(name)

    @invariant()
    def blocks_hold_what_was_computed(self) -> None:
        for name, tokens in self.shelf.tokens.items():
            assert self.shelf.read(name) == tokens[: self.shelf.computed[name]]

    @invariant()
    def every_block_is_free_kept_or_held(self) -> None:
        pool, prefixes = self.shelf.pool, self.shelf.prefixes
        tables = [self.shelf.cache.block_table(name) for name in self.shelf.tokens]
        held = {block for table in tables for block in table}
        counts = [sum(table.count(block) for table in tables) for block in range(NUM_BLOCKS)]
        assert pool._num_holders == counts
        empty, kept = list(pool._empty), list(prefixes._kept)
        assert sorted([*empty, *kept, *held]) == list(range(NUM_BLOCKS))
        assert pool.num_free == len(empty) + len(kept)
        assert self.shelf.cache.num_table_blocks == sum(map(len, tables))

    @invariant()
    def what_can_be_found_is_there(self) -> None:
        """Each node's block holds its tokens; nothing free can be found; a held node's parents are held."""
        tree, pool = self.shelf.prefixes._tree, self.shelf.pool
        for block, node in tree._nodes.items():
            assert self.shelf.store.read_block(block)[: len(node.tokens)] == node.tokens
            assert pool.is_held(block) or block in self.shelf.prefixes._kept
            parent = node.parent
            assert parent is not None
            if parent.parent is not None:
                assert parent.num_tokens == BLOCK_TOKENS
                assert tree._nodes[parent.block] is parent
                assert pool.is_held(parent.block) or not pool.is_held(block)

    @invariant()
    def the_ledger_agrees(self) -> None:
        expected = {
            name: {"kv_block": len(table)}
            for name in self.shelf.tokens
            if (table := self.shelf.cache.block_table(name))
        }
        assert self.shelf.ledger.outstanding() == expected

    def teardown(self) -> None:
        for name in list(self.shelf.tokens):
            self.shelf.end(name)
        assert self.shelf.cache.num_free_blocks == NUM_BLOCKS
        assert self.shelf.ledger.outstanding() == {}

    def _chosen(self, choice: int) -> str:
        names = sorted(self.shelf.tokens)
        return names[choice % len(names)]


TestPrefixCacheMachine = PrefixCacheMachine.TestCase
TestPrefixCacheMachine.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
