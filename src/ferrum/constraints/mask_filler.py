"""Computes the masks of many answers at once, on threads of its own, without the interpreter lock."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llguidance import LLExecutor

from ferrum.constraints.constraint_matcher import ConstraintMatcher
from ferrum.core.errors import FerrumError


class MaskFiller:
    """Brings masks up to date. ``num_threads`` is the most it uses; used by one thread at a time."""

    def __init__(self, num_threads: int) -> None:
        self._num_threads = num_threads
        self._executor: LLExecutor | None = None

    def fill(self, matchers: Sequence[ConstraintMatcher]) -> dict[ConstraintMatcher, FerrumError]:
        """Fills the masks that are not up to date; the matchers that failed, each with its error."""
        stale = [matcher for matcher in matchers if not matcher.is_masked]
        if not stale:
            return {}
        # New memory each time: a step that still runs may read the old masks.
        masks = np.zeros((len(stale), len(stale[0].mask)), np.uint32)
        if self._executor is None:
            self._executor = LLExecutor(self._num_threads)
        self._executor.unsafe_compute_mask_ptr(
            [(matcher.engine, row) for row, matcher in enumerate(stale)],
            masks.ctypes.data,
            masks.shape[1] * masks.itemsize,
            len(stale),
        )
        failures: dict[ConstraintMatcher, FerrumError] = {}
        for matcher, mask in zip(stale, masks, strict=True):
            matcher.mask, matcher.is_masked = mask, True
            if matcher.engine.is_error():
                failures[matcher] = matcher.failure()
        return failures
