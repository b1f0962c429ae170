"""Many short requests, a third of them given up, on a real model: all end, nothing stays."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ferrum.assembly.model_loading import LoadOptions
from ferrum.assembly.start_model import start_model
from ferrum.bench.soak import Soak
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.weights.progress_reporter import SilentReporter

NUM_ROUNDS, REQUESTS_PER_ROUND = 4, 60


@pytest.mark.slow
def test_hundreds_of_requests_come_and_go_and_leave_nothing(smollm2_path: Path) -> None:
    """benchmarks/soak.py is the long form, which also holds processor time against a bound."""
    scheduler = SchedulerConfig(expected_output_tokens=8)
    # One thread: two would spin for each other where others compute beside the test.
    options = LoadOptions(threads=1, engine=EngineConfig(max_model_len=256, scheduler=scheduler))
    engine = start_model(str(smollm2_path), options, SilentReporter()).engine
    try:
        report = asyncio.run(Soak(engine, REQUESTS_PER_ROUND).run(NUM_ROUNDS))
    finally:
        engine.close(0.0)
    assert report.endings.total() == NUM_ROUNDS * REQUESTS_PER_ROUND
    assert {"cancelled", "length", "stop", "left"} <= report.endings.keys()
    assert report.bytes_per_request < 4096
    ledger = engine.resources.cache.ledger
    assert ledger.outstanding() == {}
    assert (ledger.num_underflows, ledger.num_dropped_leases) == (0, 0)
