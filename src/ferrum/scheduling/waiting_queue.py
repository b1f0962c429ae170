"""Requests that wait to run, in the order of their tickets."""

from __future__ import annotations

from bisect import insort

from ferrum.scheduling.sequence import Sequence


class WaitingQueue:
    """A short sorted list: a preempted request comes back to the place its old ticket gives it."""

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []
        self._num_tokens = 0

    def __len__(self) -> int:
        return len(self._sequences)

    @property
    def num_tokens(self) -> int:
        """Known tokens of everything that waits."""
        return self._num_tokens

    def __getitem__(self, place: int) -> Sequence:
        return self._sequences[place]

    def push(self, sequence: Sequence) -> None:
        insort(self._sequences, sequence, key=lambda waiting: waiting.ticket)
        self._num_tokens += len(sequence.token_ids)

    def remove(self, sequence: Sequence) -> None:
        self._sequences.remove(sequence)
        self._num_tokens -= len(sequence.token_ids)
