"""Times of steps and tokens as the engine reports them to its observers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ferrum.core.events import Event, FirstToken, StepRan, TokensEmitted


@dataclass(frozen=True, slots=True)
class TimedStep:
    """A step, and the seconds from the end of the one before it to its own end."""

    wall_s: float
    step: StepRan


class EngineProbe:
    """An Observer that keeps all since ``reset``. Called on the engine's thread; read when it is idle."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Forgets all; called before the requests of a measurement are submitted."""
        self.steps: list[TimedStep] = []
        self.first_tokens_s: list[float] = []
        self.gaps_s: list[float] = []
        self._last = self._clock()

    def on(self, event: Event) -> None:
        if isinstance(event, StepRan):
            now = self._clock()
            self.steps.append(TimedStep(now - self._last, event))
            self._last = now
        elif isinstance(event, FirstToken):
            self.first_tokens_s.append(event.ttft_s)
        elif isinstance(event, TokensEmitted):
            self.gaps_s += event.gaps_s

    def decode_steps(self, num_sequences: int) -> list[TimedStep]:
        """Steps that gave every one of ``num_sequences`` a token and did nothing else."""
        return [
            timed
            for timed in self.steps
            if timed.step.num_prefill_tokens == 0 and timed.step.num_sequences == num_sequences
        ]

    def prefill_steps(self) -> list[TimedStep]:
        """Steps that computed prompt tokens, beside decodes or alone."""
        return [timed for timed in self.steps if timed.step.num_prefill_tokens]
