"""PrefixRendezvous: requests that share a prefix wait while one of them computes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ferrum.cache.prefix_scope import PrefixScope
from ferrum.scheduling.sequence import Sequence


@dataclass(slots=True)
class _Hold:
    """A follower waits until ``leader`` has computed ``target`` tokens, or stood still until ``deadline``."""

    leader: Sequence
    target: int
    progress: int
    deadline: float


_Beginning = tuple[PrefixScope, tuple[int, ...]]
"""What requests that may wait for one another have in common: the scope and the first block of tokens."""


class PrefixRendezvous:
    """Who waits for whom. A hold gives nothing: a follower keeps its place among those that wait.

    Every hold ends: the leader gets there, it leaves (end, failure, preemption), or it makes no progress for
    ``max_wait_s``; 0 turns all of this off. Mutated by the scheduler only.
    """

    def __init__(self, max_wait_s: float, block_tokens: int, clock: Callable[[], float]) -> None:
        self._max_wait_s = max_wait_s
        self._block_tokens = block_tokens
        self._clock = clock
        self._holds: dict[Sequence, _Hold] = {}
        # Their leader stood still once; they do not wait again.
        self._impatient: set[Sequence] = set()
        # Who runs, by the first block of tokens; those who have nothing left to lead by are dropped when met.
        self._leaders: dict[_Beginning, list[Sequence]] = {}

    def must_wait(self, follower: Sequence) -> bool:
        """Whether the follower's hold still stands; one that is over is forgotten."""
        hold = self._holds.get(follower)
        if hold is None:
            return False
        now, progress = self._clock(), hold.leader.num_computed_tokens
        if progress >= hold.target:
            del self._holds[follower]
            return False
        if progress > hold.progress:
            hold.progress, hold.deadline = progress, now + self._max_wait_s
        elif now >= hold.deadline:
            del self._holds[follower]
            self._impatient.add(follower)
            return False
        return True

    def lead(self, sequence: Sequence) -> None:
        """A request begins to run; others may wait for what it is about to compute."""
        if self._max_wait_s and self._can_lead(sequence):
            self._leaders.setdefault(self._beginning(sequence), []).append(sequence)

    def try_to_hold(self, follower: Sequence, num_found: int) -> bool:
        """Lets the follower wait when a running request is about to compute more of its prefix.

        ``num_found``: its tokens that the cache holds already.
        """
        if not self._max_wait_s or follower in self._impatient:
            return False
        needed = num_found + self._block_tokens  # Less is computed sooner than waited for.
        leader, boundary = None, needed - 1
        for other in self._leaders_like(follower):
            if other.priority > follower.priority:
                continue
            shared = _shared_tokens(follower, other, needed)
            if shared > max(boundary, other.num_computed_tokens):
                leader, boundary = other, shared
        if leader is None:
            return False
        # Others find whole blocks, and what is left over when all is computed.
        target = min(-(-boundary // self._block_tokens) * self._block_tokens, len(leader.token_ids))
        progress = leader.num_computed_tokens
        self._holds[follower] = _Hold(leader, target, progress, self._clock() + self._max_wait_s)
        return True

    def leave(self, sequence: Sequence) -> None:
        """A request stopped waiting or running: nobody waits for it any more."""
        self._holds.pop(sequence, None)
        self._impatient.discard(sequence)
        self._drop_leader(sequence)
        for follower, hold in tuple(self._holds.items()):
            if hold.leader is sequence:
                del self._holds[follower]

    def _beginning(self, sequence: Sequence) -> _Beginning:
        return sequence.scope, tuple(sequence.token_ids[: self._block_tokens])

    def _can_lead(self, sequence: Sequence) -> bool:
        """Whether it computes a whole block yet; what it has computed, others find."""
        return sequence.num_remaining_tokens >= self._block_tokens

    def _leaders_like(self, follower: Sequence) -> list[Sequence]:
        beginning = self._beginning(follower)
        leaders = [other for other in self._leaders.get(beginning, ()) if self._can_lead(other)]
        if leaders:
            self._leaders[beginning] = leaders
        else:
            self._leaders.pop(beginning, None)
        return leaders

    def _drop_leader(self, sequence: Sequence) -> None:
        beginning = self._beginning(sequence)
        leaders = [other for other in self._leaders.get(beginning, ()) if other is not sequence]
        if leaders:
            self._leaders[beginning] = leaders
        else:
            self._leaders.pop(beginning, None)


def _shared_tokens(follower: Sequence, leader: Sequence, at_least: int) -> int:
    """How many tokens both begin with, not counting the follower's last; 0 if below ``at_least``."""
    limit = min(len(follower.token_ids) - 1, len(leader.token_ids))
    if limit < at_least or follower.token_ids[:at_least] != leader.token_ids[:at_least]:
        return 0
    equal = at_least
    while equal < limit:
        middle = (equal + limit + 1) // 2
        if follower.token_ids[equal:middle] == leader.token_ids[equal:middle]:
            equal = middle
        else:
            limit = middle - 1
    return equal
