"""How many KV blocks the running requests have been promised, so that what is admitted can finish."""

from __future__ import annotations


class BlockPromises:
    """Promises add up to no more than the pool holds, so growth within a promise always finds a block.

    Mutated by the scheduler only.
    """

    def __init__(self, num_blocks: int) -> None:
        self._promised: dict[str, int] = {}
        self._num_unpromised = num_blocks

    @property
    def num_unpromised(self) -> int:
        return self._num_unpromised

    def raise_to(self, request_id: str, num_blocks: int) -> bool:
        """Promises the request at least ``num_blocks`` in all; False, changing nothing, without them."""
        missing = num_blocks - self._promised.get(request_id, 0)
        if missing > self._num_unpromised:
            return False
        if missing > 0:
            self._promised[request_id] = num_blocks
            self._num_unpromised -= missing
        return True

    def withdraw(self, request_id: str) -> None:
        self._num_unpromised += self._promised.pop(request_id, 0)
