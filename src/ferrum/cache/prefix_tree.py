"""PrefixTree: finds KV blocks by the tokens they hold and all tokens before them. Knows no requests.

A block's keys and values depend on every token before it, so its key is the whole chain. The tree holds that
chain as a path: a lookup compares token ids, and no two chains can be mistaken for one another as they could
if a hash were trusted.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ferrum.cache.prefix_scope import PrefixScope

TOKEN_BYTES: Final = array("i").itemsize
# A chain may branch into very many; the newest are the likeliest to share more than whole blocks.
MOST_SIBLINGS: Final = 32


def token_bytes(token_ids: Sequence[int]) -> bytes:
    """Token ids as the tree compares them."""
    return array("i", token_ids).tobytes()


class PrefixNode:
    """One block of a chain. ``tokens``: its own token ids; fewer than a block holds where a chain ends.

    A root stands before the first block of its scope and has no tokens and no block. Mutated by the tree.
    """

    __slots__ = ("block", "children", "parent", "scope", "tokens")

    def __init__(
        self, scope: PrefixScope, parent: PrefixNode | None = None, tokens: bytes = b"", block: int = -1
    ) -> None:
        self.scope = scope
        self.parent = parent
        self.tokens = tokens
        self.block = block
        self.children: dict[bytes, PrefixNode] = {}

    @property
    def num_tokens(self) -> int:
        return len(self.tokens) // TOKEN_BYTES

    def token_at(self, index: int) -> int | None:
        """One of its own token ids; None past its last."""
        token = self.tokens[index * TOKEN_BYTES : (index + 1) * TOKEN_BYTES]
        return array("i", token)[0] if token else None


@dataclass(frozen=True, slots=True)
class PrefixPath:
    """Whole blocks that hold the first tokens of a request, and the block that begins with the next ones.

    ``last``: the last of the nodes, or the scope's root; None when the scope has nothing.
    """

    nodes: tuple[PrefixNode, ...] = ()
    last: PrefixNode | None = None
    branch: PrefixNode | None = None
    num_branch_tokens: int = 0


class PrefixTree:
    """Paths of nodes, one tree a scope. Each block is in at most one node. Mutated by PrefixCache only."""

    def __init__(self, block_tokens: int) -> None:
        self._block_bytes = block_tokens * TOKEN_BYTES
        self._roots: dict[PrefixScope, PrefixNode] = {}
        self._nodes: dict[int, PrefixNode] = {}
        self._num_tokens = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, block: int) -> bool:
        return block in self._nodes

    @property
    def num_tokens(self) -> int:
        """Tokens of all nodes."""
        return self._num_tokens

    def node_of(self, block: int) -> PrefixNode | None:
        return self._nodes.get(block)

    def find(
        self, scope: PrefixScope, tokens: bytes, most_siblings: int | None = MOST_SIBLINGS
    ) -> PrefixPath:
        """The longest path that ``tokens`` begin with; its branch is sought among the newest siblings.

        O(tokens + siblings). ``most_siblings`` None = all of them.
        """
        node = self._roots.get(scope)
        path: list[PrefixNode] = []
        if node is None:
            return PrefixPath()
        size, start = self._block_bytes, 0
        while start + size <= len(tokens):
            child = node.children.get(tokens[start : start + size])
            if child is None:
                break
            path.append(child)
            node = child
            start += size
        branch, num_tokens = _closest(_newest(node, most_siblings), tokens[start : start + size])
        return PrefixPath(tuple(path), node, branch, num_tokens)

    def child(self, scope: PrefixScope, parent: PrefixNode | None, tokens: bytes) -> PrefixNode | None:
        """The node of exactly ``tokens`` after ``parent``; None stands for the scope's beginning."""
        node = parent or self._roots.get(scope)
        return None if node is None else node.children.get(tokens)

    def holds(self, scope: PrefixScope, parent: PrefixNode | None, tokens: bytes) -> bool:
        """Whether a node of exactly ``tokens``, or one of the newest that begins with them, follows."""
        node = parent or self._roots.get(scope)
        if node is None:
            return False
        return tokens in node.children or any(
            child.tokens.startswith(tokens) for child in _newest(node, MOST_SIBLINGS)
        )

    def add(self, scope: PrefixScope, parent: PrefixNode | None, tokens: bytes, block: int) -> PrefixNode:
        """A new node after ``parent``, which is whole. No node of the same tokens may be there already."""
        assert block not in self._nodes, f"block {block} is in the tree already"
        node = parent or self._roots.setdefault(scope, PrefixNode(scope))
        assert tokens not in node.children
        child = node.children[tokens] = self._nodes[block] = PrefixNode(scope, node, tokens, block)
        self._num_tokens += child.num_tokens
        return child

    def remove(self, block: int) -> None:
        """Takes the block's node out; nothing may follow it."""
        node = self._nodes.pop(block)
        assert not node.children, f"block {block} has followers"
        assert node.parent is not None
        del node.parent.children[node.tokens]
        self._num_tokens -= node.num_tokens
        if node.parent.parent is None and not node.parent.children:
            del self._roots[node.scope]


def _newest(node: PrefixNode, most: int | None) -> Iterator[PrefixNode]:
    return islice(reversed(node.children.values()), most)


def _closest(nodes: Iterator[PrefixNode], tokens: bytes) -> tuple[PrefixNode | None, int]:
    """The node that begins with most of ``tokens``, and how many of them; None when not even the first."""
    closest, most = None, 0
    first = tokens[:TOKEN_BYTES]
    for node in nodes:
        if first and node.tokens.startswith(first):
            num_tokens = common_tokens(node.tokens, tokens)
            if num_tokens > most:
                closest, most = node, num_tokens
    return closest, most


def common_tokens(a: bytes, b: bytes) -> int:
    """How many tokens both begin with; by halving, as comparing bytes is far quicker than a loop."""
    equal, limit = 0, min(len(a), len(b)) // TOKEN_BYTES
    while equal < limit:
        middle = (equal + limit + 1) // 2
        start, end = equal * TOKEN_BYTES, middle * TOKEN_BYTES
        if a[start:end] == b[start:end]:
            equal = middle
        else:
            limit = middle - 1
    return equal
