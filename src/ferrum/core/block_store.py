"""BlockStore: what is asked of the memory behind KV blocks so that requests can share them."""

from __future__ import annotations

from typing import Protocol


class BlockStore(Protocol):
    """Keys and values of whole blocks, in a layout of the store's own.

    Called by the engine's thread only. A block that a running step writes is never read or written here.
    """

    @property
    def block_bytes(self) -> int:
        """Bytes of one block's keys and values in all layers."""
        ...

    @property
    def layout_id(self) -> str:
        """Names the order of bytes in a block; content moves only between stores that agree on it."""
        ...

    def copy_block(self, source: int, target: int) -> None:
        """Makes ``target`` hold what ``source`` holds."""
        ...

    def read_block(self, block: int) -> bytes:
        """The block's content, ``block_bytes`` long."""
        ...

    def write_block(self, block: int, content: bytes) -> None:
        """Replaces the block's content; ``content`` is ``block_bytes`` long."""
        ...
