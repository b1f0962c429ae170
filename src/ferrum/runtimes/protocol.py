"""What every runtime promises: flat arrays of one step in, chosen tokens out.

A runtime owns the weights in its own layout and the KV arena, sized when it is built. It knows nothing of
requests, scheduling or text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol, Self

import numpy as np

from ferrum.core.arrays import Float64Array, FloatArray, Int32Array, Uint64Array
from ferrum.core.block_store import BlockStore
from ferrum.core.token_rules import TokenMask, TokenRules


@dataclass(frozen=True, slots=True)
class SamplingBatch:
    """Sampling instructions as columns, one entry per output row; see SamplingInstruction.

    ``rules`` and ``masks`` are None where no row has one.
    """

    temperature: FloatArray  # [num_outputs], 0 = greedy
    top_k: Int32Array  # [num_outputs], 0 = all
    top_p: FloatArray  # [num_outputs]
    min_p: FloatArray  # [num_outputs]
    seed: Uint64Array  # [num_outputs]
    position: Int32Array  # [num_outputs], index of the token being chosen in prompt + output
    rules: tuple[TokenRules | None, ...] | None = None  # [num_outputs]
    masks: tuple[TokenMask | None, ...] | None = None  # [num_outputs]


@dataclass(frozen=True, slots=True)
class LogprobBatch:
    """Which output rows want log-probabilities, one entry per output row; see RowLogprobs."""

    # [num_outputs], 0 = none, else of the row's token and of the num_entries - 1 most likely ones
    num_entries: Int32Array
    # [num_outputs], the row's token where it is known already; -1 where one is chosen
    known_tokens: Int32Array


@dataclass(frozen=True, slots=True)
class LogprobOutput:
    """What was found; rows and entries that nobody wanted hold zeros."""

    values: FloatArray  # [num_outputs], of the row's token
    ranks: Int32Array  # [num_outputs], of the row's token, from 1
    top_ids: Int32Array  # [num_outputs, most entries wanted]
    top_values: FloatArray  # [num_outputs, most entries wanted]

    @classmethod
    def for_batch(cls, batch: LogprobBatch) -> Self:
        """Room for what ``batch`` wants."""
        num_outputs = len(batch.num_entries)
        shape = (num_outputs, max(0, int(batch.num_entries.max(initial=0)) - 1))
        return cls(
            values=np.zeros(num_outputs, np.float32),
            ranks=np.zeros(num_outputs, np.int32),
            top_ids=np.zeros(shape, np.int32),
            top_values=np.zeros(shape, np.float32),
        )


@dataclass(frozen=True, slots=True)
class StepBatch:
    """One step as flat arrays. Rows of one sequence are consecutive and at consecutive positions.

    ``num_lent_processors``: see StepPlan.
    """

    token_ids: Int32Array  # [num_tokens]
    positions: Int32Array  # [num_tokens]
    sequence_starts: Int32Array  # [num_sequences + 1], row ranges
    block_tables: Int32Array  # [num_sequences, at least most blocks of any sequence], the rest 0
    output_rows: Int32Array  # [num_outputs], ascending rows whose logits are wanted
    sampling: SamplingBatch | None  # None: no token is chosen (then ask for logits or digests)
    logprobs: LogprobBatch | None = None  # None: nobody wants any; only with sampling
    num_lent_processors: int = 0


class LogitsDetail(IntEnum):
    """What a step reports of the logits besides the chosen tokens."""

    NONE = 0
    DIGEST = 1
    FULL = 2


def _no_mu() -> Float64Array:
    return np.zeros(0, np.float64)


@dataclass(frozen=True, slots=True)
class ChosenTokens:
    """``mirostat_mu``: the most surprise the token after each may have; see TokenRules."""

    token_ids: Int32Array  # [num_outputs]
    mirostat_mu: Float64Array  # [num_outputs]


@dataclass(frozen=True, slots=True)
class StepOutput:
    """``token_ids`` is empty without sampling, and holds known tokens as they are; digests and logits are
    empty unless the detail asked for them.
    """

    token_ids: Int32Array  # [num_outputs]
    logit_digests: Uint64Array  # [num_outputs]
    logits: FloatArray  # [num_outputs, vocabulary]
    logprobs: LogprobOutput | None = None  # where the batch asked for them
    mirostat_mu: Float64Array = field(default_factory=_no_mu)  # [num_outputs] where the batch has rules


class Runtime(BlockStore, Protocol):
    """Runs steps of one model. ``run`` is called by one thread at a time. It is the store of its KV blocks.

    ``numerics_id`` names everything that decides the bits of a result besides plan and weights.
    ``keeps_same_tokens_law``: a result depends on the sequence alone, bit for bit (docs/decisions).
    """

    @property
    def numerics_id(self) -> str: ...
    @property
    def keeps_same_tokens_law(self) -> bool: ...
    @property
    def num_blocks(self) -> int: ...
    @property
    def block_tokens(self) -> int: ...
    @property
    def context_length(self) -> int: ...
    @property
    def vocabulary_size(self) -> int: ...

    def run(self, batch: StepBatch, detail: LogitsDetail = LogitsDetail.NONE) -> StepOutput:
        """Computes the step, writing K and V of every row into its block.

        Raises InternalError when a token is wanted of logits that are not finite, and StepAborted when
        ``abort`` was called while it ran; nothing it wrote may then be relied on.
        """
        ...

    def abort(self) -> None:
        """Makes a running step stop at the next operation; callable from any thread."""
        ...

    def close(self) -> None:
        """Frees arenas and threads; idempotent."""
        ...


class StepAborted(Exception):
    """A step was given up because ``Runtime.abort`` was called."""
