"""The least time a step can take on a machine: the roofline of its bytes and its arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ferrum.bench.step_work import StepWork
from ferrum.weights.tensor_types import TensorType


class Bound(StrEnum):
    """Which of the two a step waits for."""

    BYTES = "bytes"
    ARITHMETIC = "arithmetic"


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What the machine can do at most, all threads together.

    ``linear_operations`` holds the rate of each weight type, in operations per second; a multiply-add counts
    as two.
    """

    read_bytes_per_second: float
    linear_operations: Mapping[TensorType, float]
    attention_operations: float


@dataclass(frozen=True, slots=True)
class Floor:
    """Seconds of the bytes, of the arithmetic, and of the floor.

    Within a step both can go on at once, so the longer one is the step's floor; steps follow each other.
    """

    bytes_s: float
    arithmetic_s: float
    seconds: float

    @property
    def bound(self) -> Bound:
        return Bound.BYTES if self.bytes_s >= self.arithmetic_s else Bound.ARITHMETIC


def floor_of(steps: Sequence[StepWork], ceilings: Ceilings) -> Floor:
    """The floor of ``steps`` one after the other: no step starts before the one before it has ended."""
    floors = [_step_floor(step, ceilings) for step in steps]
    return Floor(
        sum(floor.bytes_s for floor in floors),
        sum(floor.arithmetic_s for floor in floors),
        sum(floor.seconds for floor in floors),
    )


def _step_floor(step: StepWork, ceilings: Ceilings) -> Floor:
    arithmetic_s = 2 * step.attention_multiply_adds / ceilings.attention_operations
    for kind, multiply_adds in step.linear_multiply_adds.items():
        arithmetic_s += 2 * multiply_adds / ceilings.linear_operations[kind]
    bytes_s = step.num_bytes / ceilings.read_bytes_per_second
    return Floor(bytes_s, arithmetic_s, max(bytes_s, arithmetic_s))
