"""Sampling instructions as the columns that a runtime reads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from struct import Struct

import numpy as np

from ferrum.core.step import SamplingInstruction
from ferrum.core.token_rules import TokenMask, TokenRules
from ferrum.runtimes.protocol import SamplingBatch

# What a choice is made of, in the order of the columns; seeds first, which want addresses that 8 divides.
_COLUMNS = attrgetter("seed", "temperature", "top_p", "min_p", "top_k", "position")


class SamplingColumns:
    """The columns of ``num_rows`` choices, filled anew for each step in the same memory.

    The compute threads wait while a step's arrays are made, and what numpy needs to make one has left the
    caches since the last step: all numbers are written by one call instead, and a batch holds until the next
    one is asked for.
    """

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self._layout = Struct(f"={num_rows}Q{3 * num_rows}f{2 * num_rows}i")
        self._memory = bytearray(self._layout.size)
        seeds = np.frombuffer(self._memory, np.uint64, num_rows)
        reals = np.frombuffer(self._memory, np.float32, 3 * num_rows, seeds.nbytes)
        counts = np.frombuffer(self._memory, np.int32, 2 * num_rows, seeds.nbytes + reals.nbytes)
        self._temperature, self._top_p, self._min_p = reals.reshape(3, num_rows)
        self._top_k, self._position = counts.reshape(2, num_rows)
        self._seed = seeds
        self._plain = self._batch_with(None, None)

    def batch(self, choices: Sequence[SamplingInstruction]) -> SamplingBatch:
        """``choices``, one a row; the same object as long as none has rules or a mask."""
        self._layout.pack_into(
            self._memory, 0, *chain.from_iterable(zip(*map(_COLUMNS, choices), strict=True))
        )
        has_rules = [choice for choice in choices if choice.rules is not None]
        has_masks = [choice for choice in choices if choice.mask is not None]
        if not has_rules and not has_masks:
            return self._plain
        return self._batch_with(
            tuple([choice.rules for choice in choices]) if has_rules else None,
            tuple([choice.mask for choice in choices]) if has_masks else None,
        )

    def _batch_with(
        self, rules: tuple[TokenRules | None, ...] | None, masks: tuple[TokenMask | None, ...] | None
    ) -> SamplingBatch:
        return SamplingBatch(
            self._temperature,
            self._top_k,
            self._top_p,
            self._min_p,
            self._seed,
            self._position,
            rules,
            masks,
        )


def build_sampling_batch(instructions: Sequence[SamplingInstruction]) -> SamplingBatch:
    """Instructions as columns that nobody else writes to."""
    return SamplingColumns(len(instructions)).batch(instructions)
