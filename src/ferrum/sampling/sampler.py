"""Samplers an executor may be given in place of the runtime's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from ferrum.core.arrays import FloatArray
from ferrum.core.step import SamplingInstruction
from ferrum.sampling.reference_sampler import Choice, choose_with_state


class Sampler(Protocol):
    """Chooses a token from one row of logits [vocabulary] by the instruction alone: it has no state."""

    def choose(self, logits: FloatArray, sampling: SamplingInstruction) -> Choice: ...


class MultinomialSampler:
    """What the request asks for; the same arithmetic as the runtime's own sampler."""

    def choose(self, logits: FloatArray, sampling: SamplingInstruction) -> Choice:
        return choose_with_state(logits, sampling)


class GreedySampler:
    """The most likely token, whatever temperature the request asks for."""

    def choose(self, logits: FloatArray, sampling: SamplingInstruction) -> Choice:
        return choose_with_state(logits, replace(sampling, temperature=0.0))
