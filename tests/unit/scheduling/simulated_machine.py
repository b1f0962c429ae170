"""A machine whose steps take as long as their work says: what a pace has to learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ferrum.core.step import SequencePart
from ferrum.plan.plan_work import AttentionWork, PlanWork
from ferrum.plan.work_part import WorkPart

# About smollm2:135m.
WORK = PlanWork(
    weight_bytes=90_000_000,
    token_multiply_adds=106_000_000,
    output_multiply_adds=28_000_000,
    attention=(AttentionWork(None, key_bytes=23_040, pair_multiply_adds=34_560),),
)


@dataclass(frozen=True, slots=True)
class SimulatedMachine:
    """Seconds of a step; decodes read, prompts compute. ``noise`` is asked for a factor in each step."""

    slowness: float = 1.0
    noise: Callable[[], float] = lambda: 1.0

    def seconds(self, parts: Sequence[SequencePart]) -> float:
        decodes = [_work_part(part) for part in parts if part.is_decode]
        prompts = [_work_part(part) for part in parts if not part.is_decode]
        reading = WORK.of(decodes, len(decodes))
        computing = WORK.of(prompts, 0)
        seconds = (
            reading.weight_bytes * 3e-11
            + reading.linear_multiply_adds * 3e-12
            + reading.kv_bytes * 5e-11
            + computing.linear_multiply_adds * 2.4e-12
            + computing.attention_multiply_adds * 7e-12
        )
        return seconds * self.slowness * self.noise()


def _work_part(part: SequencePart) -> WorkPart:
    return WorkPart(part.start_position, len(part.token_ids))
