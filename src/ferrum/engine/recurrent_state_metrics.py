"""The recurrent states' numbers for Prometheus, read from the engine's status when somebody scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ferrum.cache.recurrent_state import RecurrentStateStats


class RecurrentStateCollector(Collector):
    """No series for a model without recurrent states; the number of slots only where it is limited."""

    def __init__(self, read_stats: Callable[[], RecurrentStateStats | None]) -> None:
        self._read_stats = read_stats

    def collect(self) -> Iterator[Metric]:
        stats = self._read_stats()
        if stats is None:
            return
        if stats.total_slots is not None:
            yield _gauge("slots", "Sequences that can have a state at once", stats.total_slots)
        yield _gauge("slots_used", "Sequences that have a state", stats.used_slots)
        yield _gauge("bytes_used", "Bytes of their states", stats.used_bytes)
        yield CounterMetricFamily(
            "ferrum_recurrent_state_failures", "States that were refused", value=stats.num_failures
        )


def _gauge(name: str, meaning: str, value: int) -> Metric:
    return GaugeMetricFamily(f"ferrum_recurrent_state_{name}", meaning, value=value)
