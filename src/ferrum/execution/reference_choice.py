"""The reference sampler over a whole batch of instructions, for runtimes that compute logits only."""

from __future__ import annotations

import numpy as np

from ferrum.core.arrays import FloatArray, Int32Array
from ferrum.core.step import SamplingInstruction
from ferrum.runtimes.protocol import SamplingBatch
from ferrum.sampling.reference_sampler import choose


def choose_tokens(logits: FloatArray, sampling: SamplingBatch) -> Int32Array:
    """The chosen id for each row of ``logits`` [num_outputs, vocabulary]."""
    nothing = (None,) * len(logits)
    columns = zip(
        sampling.temperature.tolist(),
        sampling.top_k.tolist(),
        sampling.top_p.tolist(),
        sampling.min_p.tolist(),
        sampling.seed.tolist(),
        sampling.position.tolist(),
        sampling.rules or nothing,
        sampling.masks or nothing,
        strict=True,
    )
    instructions = [SamplingInstruction(*column) for column in columns]
    return np.array([choose(*row) for row in zip(logits, instructions, strict=True)], dtype=np.int32)
