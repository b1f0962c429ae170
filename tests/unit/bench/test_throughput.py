"""Rates from what an engine's observer saw."""

from __future__ import annotations

import pytest

from ferrum.bench.engine_probe import EngineProbe
from ferrum.bench.throughput import ThroughputRow, run_of
from ferrum.core.events import FirstToken, RequestQueued, StepRan, TokensEmitted
from ferrum.testing.manual_clock import ManualClock


class Script:
    """Tells a probe of steps that take the seconds it is told."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.probe = EngineProbe(self.clock)

    def step(self, seconds: float, num_sequences: int, prefill_tokens: int = 0) -> None:
        self.clock.advance(seconds)
        tokens = prefill_tokens or num_sequences
        self.probe.on(StepRan(0.0, seconds, 0.0, tokens, num_sequences, prefill_tokens))

    def tokens(self, first: float | None, gaps: list[float]) -> None:
        if first is not None:
            self.probe.on(FirstToken("r", first))
        if gaps:
            self.probe.on(TokensEmitted(("r",) * len(gaps), tuple(gaps)))


def two_requests() -> Script:
    """A prompt of 30 in 1 s, another beside a decode in 2 s, then three steps of both."""
    script = Script()
    script.probe.on(RequestQueued("r", 30))
    script.step(1.0, 1, prefill_tokens=30)
    script.tokens(1.0, [])
    script.step(2.0, 2, prefill_tokens=30)
    script.tokens(3.0, [2.0])
    for _ in range(3):
        script.step(0.5, 2)
        script.tokens(None, [0.5, 0.5])
    return script


def test_rates_count_the_steps_they_are_about() -> None:
    run = run_of(two_requests().probe, 2)
    assert run.prefill_rate == pytest.approx(60 / 3.0)
    # The first common step is left out: it shares the end of the last prefill.
    assert run.decode_rate == pytest.approx(4 / 1.0)
    assert run.output_rate == pytest.approx((2 + 1 + 6) / 4.5)
    assert run.gaps_ms is not None
    assert (run.gaps_ms.p50, run.gaps_ms.largest) == (500.0, 2000.0)
    assert run.first_tokens_ms is not None
    assert run.first_tokens_ms.largest == 3000.0


def test_without_a_step_of_all_requests_there_is_no_decode_rate() -> None:
    run = run_of(two_requests().probe, 3)
    assert run.decode_rate is None
    row = ThroughputRow(3, (run,))
    assert row.decode_rate is None
    assert row.as_json()["decode_tokens_per_second"] is None


def test_a_reset_forgets_and_starts_the_clock_again() -> None:
    script = two_requests()
    script.clock.advance(100.0)
    script.probe.reset()
    script.step(0.5, 1)
    assert [timed.wall_s for timed in script.probe.steps] == [0.5]
    assert not script.probe.gaps_s
    assert not script.probe.first_tokens_s


def test_rows_report_medians_over_repetitions() -> None:
    runs = tuple(run_of(two_requests().probe, 2) for _ in range(3))
    figures = ThroughputRow(2, runs).as_json()
    assert isinstance(figures["output_tokens_per_second"], dict)
    assert figures["output_tokens_per_second"]["repetitions"] == 3
    assert isinstance(figures["gap_ms"], dict)
    assert set(figures["gap_ms"]) >= {"p50", "p99", "largest"}
