"""PinnedPrefixes: prefixes that hold their blocks as requests do, until they are unpinned."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from ferrum.cache.cache_manager import CacheManager
from ferrum.cache.prefix_scope import PrefixScope
from ferrum.core.errors import PrefixPinnedAlready, ResourceExhausted, UnknownPrefix
from ferrum.scheduling.block_promises import BlockPromises

# Pins of the same blocks take no more of them, but each takes memory of its own.
_MOST_PINS = 256


@dataclass(frozen=True, slots=True)
class PinnedPrefix:
    """``token_ids`` fill whole blocks. ``owner`` is the name under which the blocks are leased."""

    name: str
    token_ids: tuple[int, ...]
    scope: PrefixScope
    owner: str = field(default_factory=lambda: f"pin:{uuid.uuid4().hex}", repr=False, compare=False)


class PinnedPrefixes:
    """Blocks that are pinned are not free, but the longest request always finds room beside them.

    Mutated under the engine's lock only.
    """

    def __init__(self, cache: CacheManager, promises: BlockPromises) -> None:
        self._cache = cache
        self._promises = promises
        self._pins: dict[str, PinnedPrefix] = {}

    @property
    def pins(self) -> tuple[PinnedPrefix, ...]:
        return tuple(self._pins.values())

    @property
    def num_blocks(self) -> int:
        """Blocks that are pinned, each counted once."""
        return len(self._blocks())

    def get(self, name: str) -> PinnedPrefix:
        """Raises UnknownPrefix."""
        if name not in self._pins:
            raise UnknownPrefix("pinned prefix", name, self._pins)
        return self._pins[name]

    def require_new(self, name: str) -> None:
        """Raises PrefixPinnedAlready, or ResourceExhausted when there are too many."""
        if name in self._pins:
            raise PrefixPinnedAlready(name)
        if len(self._pins) >= _MOST_PINS:
            raise ResourceExhausted("pinned prefixes", len(self._pins) + 1, _MOST_PINS, "unpin one")

    def num_cached(self, scope: PrefixScope, token_ids: Sequence[int]) -> int:
        """How many of the tokens lie in whole blocks that are there."""
        return len(self._cache.find_blocks(scope, token_ids).blocks) * self._cache.block_tokens

    def pin(self, pin: PinnedPrefix, room_tokens: int) -> tuple[int, ...]:
        """Holds blocks for all of the prefix; the answer is the blocks that have no content yet, its last.

        ``room_tokens``: the longest request. Changing nothing, it raises PrefixPinnedAlready or
        ResourceExhausted.
        """
        self.require_new(pin.name)
        match = self._cache.find_blocks(pin.scope, pin.token_ids)
        num_blocks = self._cache.blocks_for(len(pin.token_ids))
        num_pinned = len(self._blocks() | set(match.blocks)) + num_blocks - len(match.blocks)
        most = self._cache.num_blocks - self._cache.blocks_for(room_tokens)
        if num_pinned > most:
            advice = "a request may need the others; unpin a prefix, or lower --context-length"
            raise ResourceExhausted("KV blocks to pin", num_pinned, most, advice)
        if not self._promises.has_room(num_blocks, match):
            needed = num_blocks - len(match.blocks) + match.num_waking
            available = self._promises.num_unpromised
            raise ResourceExhausted("KV blocks", needed, available, "pin it when fewer requests run")
        self._cache.adopt(pin.owner, pin.scope, match)
        has_promise = self._promises.raise_to(pin.owner, num_blocks)
        assert has_promise, "there was room for it before"
        self._pins[pin.name] = pin
        return self._cache.grow(pin.owner, len(pin.token_ids))[len(match.blocks) :]

    def publish(self, name: str) -> None:
        """The blocks of a pin have their content now: let others find them."""
        pin = self._pins[name]
        self._cache.publish(pin.owner, pin.token_ids, len(pin.token_ids))

    def blocks(self, name: str) -> tuple[int, ...]:
        return self._cache.block_table(self.get(name).owner)

    def unpin(self, name: str) -> None:
        """The blocks stay findable as long as there is room. Raises UnknownPrefix."""
        pin = self.get(name)
        del self._pins[name]
        self._promises.withdraw(pin.owner)
        self._cache.release(pin.owner)
        self._cache.ledger.close(pin.owner)

    def unpin_all(self) -> None:
        for pin in self.pins:
            self.unpin(pin.name)

    def _blocks(self) -> set[int]:
        return {block for pin in self.pins for block in self._cache.block_table(pin.owner)}
