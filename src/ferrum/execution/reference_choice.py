"""The reference sampler over a whole batch of instructions, for runtimes that compute logits only."""

from __future__ import annotations

import numpy as np

from ferrum.core.arrays import FloatArray
from ferrum.core.step import SamplingInstruction
from ferrum.runtimes.protocol import ChosenTokens, SamplingBatch
from ferrum.sampling.reference_sampler import choose_with_state


def choose_tokens(logits: FloatArray, sampling: SamplingBatch) -> ChosenTokens:
    """The chosen token for each row of ``logits`` [num_outputs, vocabulary]."""
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
    chosen = [choose_with_state(*row) for row in zip(logits, instructions, strict=True)]
    return ChosenTokens(
        np.array([each.token_id for each in chosen], np.int32),
        np.array([each.mirostat_mu for each in chosen], np.float64),
    )
