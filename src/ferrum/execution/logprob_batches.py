"""Which rows of a step want log-probabilities, as the columns that a runtime reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ferrum.core.step import SamplingInstruction
from ferrum.runtimes.protocol import LogprobBatch


class LogprobBatches:
    """Step after step mostly the same rows want them, and then the same object says so."""

    def __init__(self) -> None:
        self._last: tuple[Sequence[int], Sequence[int]] = (), ()
        self._batch: LogprobBatch | None = None

    def of_choices(self, choices: Sequence[SamplingInstruction]) -> LogprobBatch | None:
        """None where no choice wants any."""
        if not [choice for choice in choices if choice.logprobs is not None]:
            return None
        return self.of_rows(list(map(num_entries_of, choices)), [-1] * len(choices))

    def of_rows(self, num_entries: Sequence[int], known_tokens: Sequence[int]) -> LogprobBatch:
        if self._batch is None or self._last != (num_entries, known_tokens):
            self._last = num_entries, known_tokens
            self._batch = LogprobBatch(np.array(num_entries, np.int32), np.array(known_tokens, np.int32))
        return self._batch


def num_entries_of(choice: SamplingInstruction) -> int:
    """The tokens whose log-probabilities a choice wants, its own among them."""
    return 0 if choice.logprobs is None else choice.logprobs + 1
