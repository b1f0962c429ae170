from __future__ import annotations

import prometheus_client
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from ferrum.engine.histogram import Histogram

BOUNDS = (0.001, 0.01, 0.5, 1.0, 30.0)
values = st.lists(st.sampled_from(BOUNDS) | st.floats(0.0, 100.0), max_size=30)


@given(values)
def test_it_reads_like_the_librarys_own(values: list[float]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    mine = Histogram("waits_seconds", "Waits", BOUNDS, ours)
    its = prometheus_client.Histogram("waits_seconds", "Waits", buckets=BOUNDS, registry=theirs)
    mine.observe_all(values)
    for value in values:
        its.observe(value)
    expected = [line for line in generate_latest(theirs).decode().splitlines() if "_created" not in line]
    assert generate_latest(ours).decode().splitlines() == expected
