"""Requests that wait to run, in the order in which they are to be let in."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from ferrum.scheduling.sequence import Rank, Sequence
from ferrum.scheduling.tenant_shares import TenantShares


class WaitingQueue:
    """A sorted list for each tenant: a preempted request comes back to the place its old ticket gives it.

    Where all are of one tenant, that is the order. Where there are several, the next is that of the tenant
    who had least so far, among those whose next request has the lowest priority number.
    """

    def __init__(self, shares: TenantShares) -> None:
        self._shares = shares
        self._queues: dict[str | None, list[Sequence]] = {}
        self._num_sequences = 0
        self._num_tokens = 0

    def __len__(self) -> int:
        return self._num_sequences

    @property
    def num_tokens(self) -> int:
        """Known tokens of everything that waits."""
        return self._num_tokens

    def candidates(self) -> Iterator[Sequence]:
        """Everyone in order. The one that was given last, and no other, may be removed meanwhile."""
        if len(self._queues) == 1:
            [queue] = self._queues.values()
            return _each(queue)
        return self._by_share()

    def push(self, sequence: Sequence) -> None:
        insort(self._queues.setdefault(sequence.tenant, []), sequence, key=_rank)
        self._num_sequences += 1
        self._num_tokens += len(sequence.token_ids)

    def remove(self, sequence: Sequence) -> None:
        queue = self._queues[sequence.tenant]
        place = bisect_left(queue, sequence.rank, key=_rank)
        assert queue[place] is sequence
        del queue[place]
        if not queue:
            del self._queues[sequence.tenant]
        self._num_sequences -= 1
        self._num_tokens -= len(sequence.token_ids)

    def _by_share(self) -> Iterator[Sequence]:
        heap = [(self._turn(queue[0]), tenant, 0) for tenant, queue in self._queues.items()]
        heapify(heap)
        while heap:
            _, tenant, place = heappop(heap)
            queue = self._queues[tenant]
            sequence = queue[place]
            yield sequence
            if place < len(queue) and queue[place] is sequence:
                place += 1
            if place < len(queue):
                heappush(heap, (self._turn(queue[place]), tenant, place))

    def _turn(self, sequence: Sequence) -> tuple[int, int, int]:
        """Smaller is sooner; the ticket makes it different for everyone."""
        return sequence.priority, self._shares.served(sequence.tenant), sequence.ticket


def _rank(sequence: Sequence) -> Rank:
    return sequence.rank


def _each(queue: list[Sequence]) -> Iterator[Sequence]:
    place = 0
    while place < len(queue):
        sequence = queue[place]
        yield sequence
        if place < len(queue) and queue[place] is sequence:
            place += 1
