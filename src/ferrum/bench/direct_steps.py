"""Steps straight on a runtime, without engine, scheduler or text: the time of the arithmetic alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from ferrum.core.arrays import Int32Array
from ferrum.runtimes.protocol import Runtime, SamplingBatch, StepBatch


@dataclass(frozen=True, slots=True)
class _Part:
    """``token_ids`` of sequence number ``sequence`` from position ``start`` on."""

    sequence: int
    start: int
    token_ids: Int32Array  # [num_tokens]


class DirectSteps:
    """Drives ``num_sequences`` sequences of random tokens, each with room for ``capacity`` tokens.

    Mutable: the random generator, and whatever the runtime holds. Nobody else may use the runtime meanwhile.
    """

    def __init__(
        self,
        runtime: Runtime,
        num_sequences: int,
        capacity: int,
        max_step_tokens: int,
        seed: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._runtime = runtime
        self._num_sequences = num_sequences
        self._max_step_tokens = max_step_tokens
        self._random = np.random.default_rng(seed)
        self._clock = clock
        blocks = -(-capacity // runtime.block_tokens)
        assert blocks * num_sequences <= runtime.num_blocks, (blocks, num_sequences, runtime.num_blocks)
        self._tables = np.arange(num_sequences * blocks, dtype=np.int32).reshape(num_sequences, blocks)

    def prefill(self, num_tokens: int) -> list[float]:
        """Seconds of each step that computes ``num_tokens`` new random tokens of every sequence, in turn."""
        seconds = []
        for sequence in range(self._num_sequences):
            tokens = self._random_tokens(num_tokens)
            for start in range(0, num_tokens, self._max_step_tokens):
                chunk = tokens[start : start + self._max_step_tokens]
                is_last = start + len(chunk) == num_tokens
                seconds.append(self._time_step([_Part(sequence, start, chunk)], chooses=is_last)[0])
        return seconds

    def decode(self, depth: int, num_steps: int) -> list[float]:
        """Seconds of each of ``num_steps`` steps that add a token to every sequence of ``depth`` tokens.

        Greedy: each token is the one chosen by the step before, as in an answer.
        """
        tokens = self._random_tokens(self._num_sequences)
        seconds = []
        for step in range(num_steps):
            parts = [
                _Part(sequence, depth + step, tokens[sequence : sequence + 1])
                for sequence in range(self._num_sequences)
            ]
            elapsed, tokens = self._time_step(parts, chooses=True)
            seconds.append(elapsed)
        return seconds

    def _time_step(self, parts: Sequence[_Part], *, chooses: bool) -> tuple[float, Int32Array]:
        batch = self._batch(parts, chooses=chooses)
        started = self._clock()
        output = self._runtime.run(batch)
        return self._clock() - started, output.token_ids

    def _batch(self, parts: Sequence[_Part], *, chooses: bool) -> StepBatch:
        ends = list(accumulate(len(part.token_ids) for part in parts))
        positions = [part.start + np.arange(len(part.token_ids), dtype=np.int32) for part in parts]
        rows = [end - 1 for end in ends] if chooses else []
        next_positions = [part.start + len(part.token_ids) for part in parts]
        return StepBatch(
            token_ids=np.concatenate([part.token_ids for part in parts]),
            positions=np.concatenate(positions).astype(np.int32),
            sequence_starts=np.array([0, *ends], np.int32),
            block_tables=self._tables[[part.sequence for part in parts]],
            output_rows=np.array(rows, np.int32),
            sampling=_greedy(next_positions) if chooses else None,
        )

    def _random_tokens(self, count: int) -> Int32Array:
        return self._random.integers(0, self._runtime.vocabulary_size, count, dtype=np.int32)


def _greedy(positions: Sequence[int]) -> SamplingBatch:
    count = len(positions)
    return SamplingBatch(
        temperature=np.zeros(count, np.float32),
        top_k=np.zeros(count, np.int32),
        top_p=np.ones(count, np.float32),
        min_p=np.zeros(count, np.float32),
        seed=np.zeros(count, np.uint64),
        position=np.array(positions, np.int32),
    )
