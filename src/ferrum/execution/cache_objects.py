"""The cache objects behind the KV blocks that an engine leases. Knows no model and no requests.

A request's first block is the handle of its object: nobody else holds that block while the request runs, and
the object goes when the block is given back. So what the engine counts in blocks is what is in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from ferrum.core.arrays import FloatArray
from ferrum.runtimes.causal_model import CacheObject


class HeldSequence:
    """A model's cache, the tokens in it and the logits after the last one. Mutated by the executor only.

    ``cache`` None: a forward pass failed and left it in no known state; the tokens before it are known still.
    """

    __slots__ = ("cache", "logits", "token_ids")

    def __init__(self, cache: CacheObject) -> None:
        self.cache: CacheObject | None = cache
        self.token_ids: list[int] = []
        self.logits: FloatArray | None = None  # [vocabulary]

    def can_go_on_with(self, token_ids: Sequence[int], start: int, most_held: int) -> bool:
        """Whether it holds all tokens before ``start``, and after them only the first of these, at most
        ``most_held``.
        """
        held = self.token_ids[start:]
        return (
            self.cache is not None
            and len(self.token_ids) >= start
            and held == list(token_ids[: len(held)])
            and len(held) <= most_held
        )


class CacheObjects:
    """Handle to held sequence. A BlockKeeper of the engine's pool that keeps nothing of a free block."""

    def __init__(self) -> None:
        self._sequences: dict[int, HeldSequence] = {}

    def __len__(self) -> int:
        return len(self._sequences)

    def get(self, handle: int) -> HeldSequence | None:
        return self._sequences.get(handle)

    def put(self, handle: int, sequence: HeldSequence) -> None:
        self._sequences[handle] = sequence

    def clear(self) -> None:
        self._sequences.clear()

    def keep(self, block: int) -> bool:
        """The block's last holder let go: an object behind it is dropped."""
        self._sequences.pop(block, None)
        return False

    def hand_out(self, block: int) -> None:
        raise AssertionError("nothing was kept")

    def forget(self, count: int) -> list[int]:
        raise AssertionError("nothing was kept")
