"""``ferrum bench profile``: where the time of a phase goes, operation by operation."""

from __future__ import annotations

from dataclasses import dataclass

from ferrum.bench.bench_model import BenchModel, BenchNeeds, ModelChoice
from ferrum.bench.ceilings import CeilingMeter, arithmetic_kinds, buffer_bytes, mean_ceilings
from ferrum.bench.direct_steps import DirectSteps
from ferrum.bench.machine import read_machine
from ferrum.bench.measured_on import MeasuredOn, measured_on
from ferrum.bench.operation_profile import ProfileLine, profile_lines
from ferrum.bench.phases import Phase, PhaseKind
from ferrum.weights.progress_reporter import ProgressReporter


@dataclass(frozen=True, slots=True)
class ProfileReport:
    """``wall_s`` is the time of all steps as their caller saw it; the lines' sum is less."""

    measured_on: MeasuredOn
    phase: Phase
    num_steps: int
    wall_s: float
    lines: tuple[ProfileLine, ...]

    @property
    def timed_s(self) -> float:
        return sum(line.seconds for line in self.lines)

    def as_json(self) -> dict[str, object]:
        return {
            **self.measured_on.as_json(),
            "phase": self.phase.name,
            "num_steps": self.num_steps,
            "num_sequences": self.phase.num_sequences,
            "num_tokens": self.phase.num_tokens,
            "depth": self.phase.depth,
            "wall_ms": self.wall_s * 1e3,
            "operations": [line.as_json(self.timed_s) for line in self.lines],
        }


def report_profile(choice: ModelChoice, phase: Phase, reporter: ProgressReporter) -> ProfileReport:
    """Runs the phase once unmeasured, then measured. Raises ModelError, InvalidConfig, ResourceExhausted."""
    needs = BenchNeeds(phase.longest_sequence, phase.num_sequences)
    with BenchModel(choice, needs, reporter) as bench:
        fitted = phase.fitted(bench.context_length)
        bench.require_room(fitted.num_sequences, fitted.longest_sequence)
        kinds = arithmetic_kinds(bench.model.plan, choice.kv_dtype)
        meter = CeilingMeter(
            kinds, bench.runtime.kernel_set, bench.model.threads.count, buffer_bytes(read_machine())
        )
        steps = DirectSteps(
            bench.runtime, fitted.num_sequences, fitted.longest_sequence, bench.max_step_tokens
        )
        if fitted.kind is PhaseKind.DECODE:
            steps.prefill(fitted.depth)
        _run(steps, fitted)
        before = meter.measure()
        bench.runtime.start_timing()
        wall = _run(steps, fitted)
        seconds = bench.runtime.stop_timing()
        ceilings = mean_ceilings((before, meter.measure()), 1.0)
        rows = fitted.steps(bench.max_step_tokens)
        lines = profile_lines(bench.runtime.executable_plan, seconds, rows, ceilings, choice.kv_dtype)
        return ProfileReport(measured_on(bench), fitted, len(wall), sum(wall), tuple(lines))


def _run(steps: DirectSteps, phase: Phase) -> list[float]:
    if phase.kind is PhaseKind.PREFILL:
        return steps.prefill(phase.num_tokens)
    return steps.decode(phase.depth, phase.num_tokens)
