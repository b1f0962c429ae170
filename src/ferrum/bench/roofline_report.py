"""``ferrum bench roofline``: puts model, meter and phases together, and says what was measured on what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ferrum.bench.bench_model import BenchModel, BenchNeeds, ModelChoice
from ferrum.bench.ceilings import CeilingMeter, arithmetic_kinds, buffer_bytes, cross_check
from ferrum.bench.engine_rate import most_tokens_of_a_sequence
from ferrum.bench.independent_reader import find_reader
from ferrum.bench.machine import read_machine
from ferrum.bench.measured_on import MeasuredOn, measured_on
from ferrum.bench.phases import Phase
from ferrum.bench.roofline import Roofline, RooflineMeasurement
from ferrum.weights.progress_reporter import ProgressReporter


@dataclass(frozen=True, slots=True)
class RooflineReport:
    """``one_thread`` holds the arithmetic rates of a single thread, by weight type and for attention."""

    measured_on: MeasuredOn
    roofline: Roofline
    buffer_bytes: int
    one_thread: dict[str, float]

    def as_json(self) -> dict[str, object]:
        return {
            **self.measured_on.as_json(),
            **self.roofline.as_json(),
            "read_buffer_bytes": self.buffer_bytes,
            "one_thread_ceilings": self.one_thread,
        }


def report_roofline(
    choice: ModelChoice,
    phases: Sequence[Phase],
    repetitions: int,
    reporter: ProgressReporter,
    on_phase: Callable[[int, str], None],
) -> RooflineReport:
    """Raises ModelError, InvalidConfig or ResourceExhausted."""
    needs = BenchNeeds(
        sequence_tokens=max(most_tokens_of_a_sequence(phase) for phase in phases),
        num_sequences=max(phase.num_sequences for phase in phases),
    )
    with BenchModel(choice, needs, reporter) as bench:
        num_threads = bench.model.threads.count
        kinds = arithmetic_kinds(bench.model.plan, choice.kv_dtype)
        meter = CeilingMeter(kinds, bench.runtime.kernel_set, num_threads, buffer_bytes(read_machine()))
        reader = find_reader(meter.num_bytes, num_threads)
        check = cross_check(meter.measure_read, reader) if reader is not None else None
        one_thread = {kind.name: rate for kind, rate in meter.measure_linears(1).items()}
        one_thread["attention"] = meter.measure_attention(1)
        roofline = RooflineMeasurement(bench, meter, check, on_phase).run(phases, repetitions)
        return RooflineReport(measured_on(bench), roofline, meter.num_bytes, one_thread)
