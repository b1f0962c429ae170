"""The roofline of a model on this machine: ceilings, the floor of each phase, and how near we come to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ferrum.bench.bench_model import BenchModel
from ferrum.bench.ceilings import CeilingMeter, CrossCheck, mean_ceilings
from ferrum.bench.direct_steps import DirectSteps
from ferrum.bench.engine_rate import EngineRun, run_engine
from ferrum.bench.floor import Bound, Ceilings, Floor, floor_of
from ferrum.bench.phases import Phase, PhaseKind
from ferrum.bench.statistics import Spread, median, spread_of
from ferrum.bench.step_work import StepWork, step_work


@dataclass(frozen=True, slots=True)
class PhaseRun:
    """One repetition: the phase on the runtime alone, through the engine, and its floor just then.

    ``engine`` is None when the context is too short for the engine's own way of starting many sequences.
    """

    direct_s: float
    step_s: float  # the median step
    engine: EngineRun | None
    floor: Floor

    @property
    def share_of_floor(self) -> float:
        """1 = as fast as the machine allows."""
        return self.floor.seconds / self.direct_s


@dataclass(frozen=True, slots=True)
class PhaseReport:
    phase: Phase
    runs: tuple[PhaseRun, ...]

    @property
    def share_of_floor(self) -> Spread:
        return spread_of([run.share_of_floor for run in self.runs])

    @property
    def tokens_per_second(self) -> Spread:
        return self._rate([run.direct_s for run in self.runs])

    @property
    def floor_tokens_per_second(self) -> Spread:
        return self._rate([run.floor.seconds for run in self.runs])

    @property
    def engine_tokens_per_second(self) -> Spread | None:
        seconds = [run.engine.seconds for run in self.runs if run.engine is not None]
        return self._rate(seconds) if seconds else None

    @property
    def engine_share_of_floor(self) -> Spread | None:
        shares = [run.floor.seconds / run.engine.seconds for run in self.runs if run.engine is not None]
        return spread_of(shares) if shares else None

    @property
    def python_ms_per_step(self) -> float | None:
        """How long the runtime waits for Python between two steps; None for phases without two alike."""
        pauses = [run.engine.between_steps_s for run in self.runs if run.engine is not None]
        measured = [pause for pause in pauses if pause is not None]
        return median(measured) * 1e3 if measured else None

    @property
    def bound(self) -> Bound:
        return self.runs[0].floor.bound

    def as_json(self) -> dict[str, object]:
        engine = self.engine_tokens_per_second
        engine_share = self.engine_share_of_floor
        return {
            "kind": self.phase.kind,
            "num_sequences": self.phase.num_sequences,
            "depth": self.phase.depth,
            "num_tokens": self.phase.num_tokens,
            "bound": self.bound,
            "floor_bytes_ms": median([run.floor.bytes_s for run in self.runs]) * 1e3,
            "floor_arithmetic_ms": median([run.floor.arithmetic_s for run in self.runs]) * 1e3,
            "measured_ms": median([run.direct_s for run in self.runs]) * 1e3,
            "median_step_ms": median([run.step_s for run in self.runs]) * 1e3,
            "floor_tokens_per_second": self.floor_tokens_per_second.as_json(),
            "tokens_per_second": self.tokens_per_second.as_json(),
            "share_of_floor": self.share_of_floor.as_json(),
            "engine_tokens_per_second": engine.as_json() if engine else None,
            "engine_share_of_floor": engine_share.as_json() if engine_share else None,
            "python_ms_per_step": self.python_ms_per_step,
        }

    def _rate(self, seconds: Sequence[float]) -> Spread:
        return spread_of([self.phase.tokens_per_run / each for each in seconds])


@dataclass(frozen=True, slots=True)
class Roofline:
    """Everything measured; ``ceilings`` holds each measurement of them, in order, as our own loops see it."""

    phases: tuple[PhaseReport, ...]
    ceilings: tuple[Ceilings, ...]
    cross_check: CrossCheck | None

    @property
    def read_factor(self) -> float:
        return self.cross_check.factor if self.cross_check else 1.0

    def as_json(self) -> dict[str, object]:
        kinds = self.ceilings[0].linear_operations.keys()
        shares = {
            f"{report.phase.name}_share_of_floor": report.share_of_floor.median for report in self.phases
        }
        return {
            **shares,
            "read_ceiling": spread_of(
                [self.read_factor * each.read_bytes_per_second for each in self.ceilings]
            ).as_json(),
            "read_cross_check": self.cross_check.as_json() if self.cross_check else None,
            "linear_ceilings": {
                kind.name: spread_of([each.linear_operations[kind] for each in self.ceilings]).as_json()
                for kind in kinds
            },
            "attention_ceiling": spread_of([each.attention_operations for each in self.ceilings]).as_json(),
            "phases": {report.phase.name: report.as_json() for report in self.phases},
        }


@dataclass(slots=True)
class RooflineMeasurement:
    """Measures phases in turn, over and over, the ceilings before and after each. Used once, by ``run``."""

    bench: BenchModel
    meter: CeilingMeter
    cross_check: CrossCheck | None
    on_phase: Callable[[int, str], None] = lambda repetition, phase: None
    _ceilings: list[Ceilings] = field(default_factory=list)

    def run(self, phases: Sequence[Phase], repetitions: int) -> Roofline:
        """Raises ResourceExhausted when the KV cache is too small for a phase."""
        fitted = [phase.fitted(self.bench.context_length) for phase in phases]
        for phase in fitted:
            self.bench.require_room(phase.num_sequences, phase.longest_sequence)
        works = {phase.name: self._works(phase) for phase in fitted}
        runs: dict[str, list[PhaseRun]] = {phase.name: [] for phase in fitted}
        for repetition in range(repetitions):
            for phase in fitted:
                self.on_phase(repetition, phase.name)
                runs[phase.name].append(self._run_phase(phase, works[phase.name], repetition))
        reports = tuple(PhaseReport(phase, tuple(runs[phase.name])) for phase in fitted)
        return Roofline(reports, tuple(self._ceilings), self.cross_check)

    def _works(self, phase: Phase) -> list[StepWork]:
        bench = self.bench
        return [
            step_work(bench.model.plan, step, bench.kv_dtype) for step in phase.steps(bench.max_step_tokens)
        ]

    def _run_phase(self, phase: Phase, work: Sequence[StepWork], seed: int) -> PhaseRun:
        steps = DirectSteps(
            self.bench.runtime,
            phase.num_sequences,
            phase.longest_sequence,
            self.bench.max_step_tokens,
            seed,
        )
        if phase.kind is PhaseKind.DECODE and seed == 0:
            # Later on the cache holds what others wrote, which takes just as long to read.
            steps.prefill(phase.depth)
        before = self.meter.measure()
        seconds = (
            steps.prefill(phase.num_tokens)
            if phase.kind is PhaseKind.PREFILL
            else steps.decode(phase.depth, phase.num_tokens)
        )
        after = self.meter.measure()
        self._ceilings += (before, after)
        factor = self.cross_check.factor if self.cross_check else 1.0
        return PhaseRun(
            direct_s=sum(seconds),
            step_s=median(seconds),
            engine=run_engine(self.bench, phase),
            floor=floor_of(work, mean_ceilings((before, after), factor)),
        )
