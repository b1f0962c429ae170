"""The phases that engines are compared in: defined by what a caller sees, so that every engine has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ferrum.bench.phases import PhaseKind
from ferrum.core.errors import UnknownComponent


@dataclass(frozen=True, slots=True)
class ComparePhase:
    """Prefill: prompt tokens per second until the first token. Decode: tokens per second after the prompt, of
    all ``num_sequences`` together while all of them are being answered.
    """

    name: str
    kind: PhaseKind
    prompt_tokens: int
    output_tokens: int
    num_sequences: int = 1

    @property
    def sequence_tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens


COMPARE_PHASES: Mapping[str, ComparePhase] = MappingProxyType(
    {
        phase.name: phase
        for phase in (
            ComparePhase("prefill512", PhaseKind.PREFILL, 512, 1),
            ComparePhase("prefill4096", PhaseKind.PREFILL, 4096, 1),
            ComparePhase("decode", PhaseKind.DECODE, 128, 64),
            ComparePhase("decode4096", PhaseKind.DECODE, 4096, 32),
            ComparePhase("batch16", PhaseKind.DECODE, 128, 128, num_sequences=16),
        )
    }
)


def compare_phase_named(name: str) -> ComparePhase:
    """Raises UnknownComponent, which lists the names there are."""
    if name not in COMPARE_PHASES:
        raise UnknownComponent("phase", name, COMPARE_PHASES)
    return COMPARE_PHASES[name]
