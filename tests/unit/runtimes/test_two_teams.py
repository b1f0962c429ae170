"""Two models in one process have a compute team each: the one that rests makes room for the other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ferrum import _native
from ferrum.core.step import SamplingInstruction
from ferrum.execution.sampling_columns import SamplingBatch, build_sampling_batch

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system tells no thread's time"),
    pytest.mark.skipif(
        len(os.sched_getaffinity(0)) < 2, reason="a team on one processor never spins for long"
    ),
]

SMALL, LARGE = 64, 100_000
NUM_ROUNDS = 40


class Team:
    """A team of two that chooses tokens; ``helper`` is the system's name of its second thread."""

    def __init__(self, num_rows: int, vocabulary: int) -> None:
        before = set(_threads())
        self._sampler = _native.kernels.Sampler(_native.kernel_sets()[0], 2, num_rows, vocabulary, 8)
        (self.helper,) = set(_threads()) - before
        logits = np.random.default_rng(5).normal(0, 3, (num_rows, vocabulary)).astype(np.float32)
        self._sampler.load(logits)
        instruction = SamplingInstruction(1.0, top_k=0, top_p=0.9, min_p=0.0, seed=1, position=0)
        self._batch: SamplingBatch = build_sampling_batch([instruction] * num_rows)
        self._tokens, self._states = np.zeros(num_rows, np.int32), np.zeros(num_rows)

    def run(self) -> None:
        self._sampler.choose(self._batch, self._tokens, self._states)

    def helper_seconds(self) -> float:
        """What the second thread has computed and spun."""
        return int(Path(f"/proc/self/task/{self.helper}/schedstat").read_text().split()[0]) / 1e9


def _threads() -> Iterator[str]:
    return (each.name for each in Path("/proc/self/task").iterdir())


def _spent_a_round(team: Team, other: Team) -> float:
    """Seconds of the team's second thread in a round of a run of each, nearly all of which is the other's."""
    before = team.helper_seconds()
    for _ in range(NUM_ROUNDS):
        team.run()
        other.run()
    return (team.helper_seconds() - before) / NUM_ROUNDS


def test_a_team_that_rests_does_not_spin_beside_one_that_computes() -> None:
    small, large = Team(1, SMALL), Team(8, LARGE)

    # Forty microseconds; spinning until it gives up would be a thousand.
    assert _spent_a_round(small, large) < 0.0003
