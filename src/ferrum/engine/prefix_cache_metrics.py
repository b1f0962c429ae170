"""The prefix cache's numbers for Prometheus, read from its status when somebody scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ferrum.cache.prefix_cache_status import PrefixCacheStatus


class PrefixCacheCollector(Collector):
    """All series are there, at zero, when the cache is off."""

    def __init__(self, status: Callable[[], PrefixCacheStatus]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        counters = (
            ("hits", "Admissions that found some of their tokens", status.hits),
            ("misses", "Admissions that found nothing", status.misses),
            ("evictions", "Blocks forgotten because their room was needed", status.evictions),
            ("saved_prefill_tokens", "Tokens found and not computed", status.saved_prefill_tokens),
        )
        gauges = (
            ("entries", "Blocks that can be found by their tokens", status.entries),
            ("tokens", "Tokens in them", status.cached_tokens),
            ("bytes", "Bytes of keys and values in them", status.num_bytes),
            ("pinned_blocks", "Blocks that stay until they are unpinned", status.pinned_blocks),
        )
        for name, meaning, count in counters:
            yield CounterMetricFamily(f"ferrum_prefix_cache_{name}", meaning, value=count)
        for name, meaning, count in gauges:
            yield GaugeMetricFamily(f"ferrum_prefix_cache_{name}", meaning, value=count)
