"""Offline throughput: many prompts through LLM at once, at several degrees of concurrency."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ferrum.bench.bench_model import BenchModel, BenchNeeds, ModelChoice
from ferrum.bench.engine_probe import EngineProbe, TimedStep
from ferrum.bench.measured_on import MeasuredOn, measured_on
from ferrum.bench.statistics import Percentiles, Spread, percentiles_of, spread_of
from ferrum.weights.progress_reporter import ProgressReporter


@dataclass(frozen=True, slots=True)
class ThroughputLoad:
    """``depth`` tokens of context come before the ``prompt_tokens`` of each prompt; both are prefilled."""

    prompt_tokens: int
    output_tokens: int
    depth: int = 0

    @property
    def sequence_tokens(self) -> int:
        return self.depth + self.prompt_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class ThroughputRun:
    """One repetition at one concurrency.

    ``decode_rate`` counts only steps that decode all requests together and is None when there was none;
    ``prefill_rate`` counts the steps with prompt tokens, whole; ``output_rate`` counts everything.
    """

    prefill_rate: float
    decode_rate: float | None
    output_rate: float
    gaps_ms: Percentiles | None
    first_tokens_ms: Percentiles | None


@dataclass(frozen=True, slots=True)
class ThroughputRow:
    """All repetitions at one concurrency; rates in tokens per second, percentiles of the median run."""

    concurrency: int
    runs: tuple[ThroughputRun, ...]

    @property
    def prefill_rate(self) -> Spread:
        return spread_of([run.prefill_rate for run in self.runs])

    @property
    def decode_rate(self) -> Spread | None:
        rates = [run.decode_rate for run in self.runs if run.decode_rate is not None]
        return spread_of(rates) if rates else None

    @property
    def output_rate(self) -> Spread:
        return spread_of([run.output_rate for run in self.runs])

    @property
    def typical(self) -> ThroughputRun:
        return sorted(self.runs, key=lambda run: run.output_rate)[len(self.runs) // 2]

    def as_json(self) -> dict[str, object]:
        decode, typical = self.decode_rate, self.typical
        return {
            "concurrency": self.concurrency,
            "prefill_tokens_per_second": self.prefill_rate.as_json(),
            "decode_tokens_per_second": decode.as_json() if decode else None,
            "output_tokens_per_second": self.output_rate.as_json(),
            "gap_ms": typical.gaps_ms.as_json() if typical.gaps_ms else None,
            "first_token_ms": typical.first_tokens_ms.as_json() if typical.first_tokens_ms else None,
        }


@dataclass(frozen=True, slots=True)
class ThroughputReport:
    measured_on: MeasuredOn
    load: ThroughputLoad
    rows: tuple[ThroughputRow, ...]

    def as_json(self) -> dict[str, object]:
        return {
            **self.measured_on.as_json(),
            "prompt_tokens": self.load.prompt_tokens,
            "output_tokens": self.load.output_tokens,
            "depth": self.load.depth,
            "runs": [row.as_json() for row in self.rows],
        }


def report_throughput(
    choice: ModelChoice,
    load: ThroughputLoad,
    concurrencies: Sequence[int],
    repetitions: int,
    reporter: ProgressReporter,
    on_run: Callable[[int, int], None],
) -> ThroughputReport:
    """The concurrencies take turns; ``on_run`` is told (repetition, concurrency) before each run.

    Raises ModelError, InvalidConfig, or ResourceExhausted when they do not fit the KV cache.
    """
    needs = BenchNeeds(load.sequence_tokens, max(concurrencies))
    with BenchModel(choice, needs, reporter) as bench:
        bench.require_room(max(concurrencies), load.sequence_tokens)
        runs: dict[int, list[ThroughputRun]] = {concurrency: [] for concurrency in concurrencies}
        for repetition in range(repetitions):
            for concurrency in runs:
                on_run(repetition, concurrency)
                runs[concurrency].append(_run(bench, load, concurrency))
        rows = tuple(ThroughputRow(concurrency, tuple(each)) for concurrency, each in runs.items())
        return ThroughputReport(measured_on(bench), load, rows)


def _run(bench: BenchModel, load: ThroughputLoad, concurrency: int) -> ThroughputRun:
    prompts = [bench.random_prompt(load.depth + load.prompt_tokens) for _ in range(concurrency)]
    bench.generate(prompts, load.output_tokens)
    return run_of(bench.probe, concurrency)


def run_of(probe: EngineProbe, concurrency: int) -> ThroughputRun:
    """The figures of what ``probe`` saw."""
    prefills = probe.prefill_steps()
    # The first step after the prompts still shares their end.
    decodes = probe.decode_steps(concurrency)[1:]
    num_outputs = len(probe.first_tokens_s) + len(probe.gaps_s)
    return ThroughputRun(
        prefill_rate=sum(timed.step.num_prefill_tokens for timed in prefills) / _seconds(prefills),
        decode_rate=concurrency * len(decodes) / _seconds(decodes) if decodes else None,
        output_rate=num_outputs / _seconds(probe.steps),
        gaps_ms=percentiles_of([gap * 1e3 for gap in probe.gaps_s]),
        first_tokens_ms=percentiles_of([first * 1e3 for first in probe.first_tokens_s]),
    )


def _seconds(steps: Sequence[TimedStep]) -> float:
    return sum(timed.wall_s for timed in steps)
