"""The phases of inference that are measured apart, because each has another limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from ferrum.bench.step_work import StepRows
from ferrum.core.errors import UnknownComponent
from ferrum.plan.work_part import WorkPart


class PhaseKind(StrEnum):
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class Phase:
    """What is computed while the clock runs.

    Prefill: ``num_tokens`` tokens of one sequence from its beginning. Decode: ``num_tokens`` further tokens
    of each of ``num_sequences`` sequences that hold ``depth`` tokens already.
    """

    name: str
    kind: PhaseKind
    num_tokens: int
    num_sequences: int = 1
    depth: int = 0

    @property
    def tokens_per_run(self) -> int:
        return self.num_sequences * self.num_tokens

    @property
    def longest_sequence(self) -> int:
        """Tokens of a sequence when the phase ends."""
        return self.depth + self.num_tokens

    def fitted(self, context_length: int) -> Phase:
        """The same phase in a context too short for it: as deep, or as long, as it can be."""
        excess = max(0, self.longest_sequence - context_length)
        if self.kind is PhaseKind.PREFILL:
            return replace(self, num_tokens=self.num_tokens - excess)
        depth = max(1, self.depth - excess)
        return replace(self, depth=depth, num_tokens=min(self.num_tokens, max(1, context_length - depth)))

    def steps(self, max_step_tokens: int) -> list[StepRows]:
        """The rows of each step, as ``direct_steps`` runs them."""
        if self.kind is PhaseKind.PREFILL:
            starts = range(0, self.num_tokens, max_step_tokens)
            lengths = [min(max_step_tokens, self.num_tokens - start) for start in starts]
            return [
                StepRows((WorkPart(start, length),), int(start + length == self.num_tokens))
                for start, length in zip(starts, lengths, strict=True)
            ]
        return [
            StepRows((WorkPart(self.depth + step, 1),) * self.num_sequences, self.num_sequences)
            for step in range(self.num_tokens)
        ]


_DECODE_STEPS = 32

PHASES: Mapping[str, Phase] = MappingProxyType(
    {
        phase.name: phase
        for phase in (
            Phase("prefill", PhaseKind.PREFILL, 512),
            Phase("prefill_deep", PhaseKind.PREFILL, 4096),
            Phase("decode", PhaseKind.DECODE, _DECODE_STEPS, depth=128),
            Phase("decode_deep", PhaseKind.DECODE, _DECODE_STEPS, depth=4096),
            Phase("batch_decode", PhaseKind.DECODE, _DECODE_STEPS, num_sequences=16, depth=128),
        )
    }
)

# The long prefill takes as long as all others together, and its floor is that of the short one and attention.
DEFAULT_PHASES = ("prefill", "decode", "decode_deep", "batch_decode")


def phase_named(name: str) -> Phase:
    """Raises UnknownComponent, which lists the names there are."""
    if name not in PHASES:
        raise UnknownComponent("phase", name, PHASES)
    return PHASES[name]
