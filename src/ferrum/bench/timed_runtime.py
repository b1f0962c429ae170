"""A runtime with a stopwatch around its steps, so that what Python does between them can be seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ferrum.bench.statistics import median
from ferrum.runtimes.protocol import LogitsDetail, Runtime, StepBatch, StepOutput


@dataclass(frozen=True, slots=True)
class RuntimeCall:
    """One step: when it began and ended, in seconds of one clock, and what it computed."""

    began_at: float
    ended_at: float
    num_sequences: int
    num_tokens: int

    def is_decode(self, num_sequences: int) -> bool:
        """Whether it gave a token to each of so many sequences and did nothing else."""
        return self.num_sequences == self.num_tokens == num_sequences


class TimedRuntime:
    """A Runtime that passes everything on to ``runtime``. ``calls`` holds every step since ``reset``."""

    def __init__(self, runtime: Runtime, clock: Callable[[], float] = time.perf_counter) -> None:
        self._runtime = runtime
        self._clock = clock
        self.calls: list[RuntimeCall] = []
        self.num_blocks = runtime.num_blocks
        self.block_tokens = runtime.block_tokens
        self.context_length = runtime.context_length
        self.vocabulary_size = runtime.vocabulary_size

    @property
    def numerics_id(self) -> str:
        return self._runtime.numerics_id

    @property
    def keeps_same_tokens_law(self) -> bool:
        return self._runtime.keeps_same_tokens_law

    def reset(self) -> None:
        """Forgets all; called while no step runs."""
        self.calls = []

    def run(self, batch: StepBatch, detail: LogitsDetail = LogitsDetail.NONE) -> StepOutput:
        began_at = self._clock()
        output = self._runtime.run(batch, detail)
        ended_at = self._clock()
        self.calls.append(
            RuntimeCall(began_at, ended_at, len(batch.sequence_starts) - 1, len(batch.token_ids))
        )
        return output

    @property
    def block_bytes(self) -> int:
        return self._runtime.block_bytes

    @property
    def layout_id(self) -> str:
        return self._runtime.layout_id

    def copy_block(self, source: int, target: int) -> None:
        self._runtime.copy_block(source, target)

    def read_block(self, block: int) -> bytes:
        return self._runtime.read_block(block)

    def write_block(self, block: int, content: bytes) -> None:
        self._runtime.write_block(block, content)

    def abort(self) -> None:
        self._runtime.abort()

    def close(self) -> None:
        self._runtime.close()


def seconds_between_decodes(calls: Sequence[RuntimeCall], num_sequences: int) -> float | None:
    """The median pause between neighbouring steps that decode ``num_sequences`` and do nothing else."""
    pauses = [
        later.began_at - earlier.ended_at
        for earlier, later in pairwise(calls)
        if earlier.is_decode(num_sequences) and later.is_decode(num_sequences)
    ]
    return median(pauses) if pauses else None
