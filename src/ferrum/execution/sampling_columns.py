"""Sampling instructions as the columns that a runtime reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ferrum.core.step import SamplingInstruction
from ferrum.runtimes.protocol import SamplingBatch


def build_sampling_batch(instructions: Sequence[SamplingInstruction]) -> SamplingBatch:
    """Instructions as columns."""
    reals = np.array(
        [
            [each.temperature for each in instructions],
            [each.top_p for each in instructions],
            [each.min_p for each in instructions],
        ],
        dtype=np.float32,
    )
    counts = np.array(
        [[each.top_k for each in instructions], [each.position for each in instructions]], dtype=np.int32
    )
    numbers = SamplingBatch(
        temperature=reals[0],
        top_k=counts[0],
        top_p=reals[1],
        min_p=reals[2],
        seed=np.array([each.seed for each in instructions], dtype=np.uint64),
        position=counts[1],
    )
    return with_rules_and_masks(numbers, instructions)


def with_rules_and_masks(
    numbers: SamplingBatch, instructions: Sequence[SamplingInstruction]
) -> SamplingBatch:
    """The columns of numbers with those of rules and masks beside them, where any row has one."""
    rules, masks = tuple(each.rules for each in instructions), tuple(each.mask for each in instructions)
    return replace(
        numbers,
        rules=rules if any(each is not None for each in rules) else None,
        masks=masks if any(each is not None for each in masks) else None,
    )
