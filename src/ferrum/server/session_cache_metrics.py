"""The session cache's numbers for Prometheus, read when somebody scrapes."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ferrum.server.session_cache import SessionCache


class SessionCacheCollector(Collector):
    """All series are there, at zero, where there are no sessions."""

    def __init__(self, sessions: SessionCache | None) -> None:
        self._sessions = sessions

    def collect(self) -> Iterator[Metric]:
        sessions = self._sessions or SessionCache()
        counters = (
            ("hits", "Turns of sessions that went on", sessions.num_hits),
            ("misses", "Turns of sessions that began", sessions.num_misses),
            ("evictions", "Sessions forgotten because others needed their place", sessions.num_evictions),
        )
        for name, meaning, count in counters:
            yield CounterMetricFamily(f"ferrum_session_cache_{name}", meaning, value=count)
        yield GaugeMetricFamily("ferrum_session_cache_entries", "Sessions remembered", value=len(sessions))
        yield GaugeMetricFamily(
            "ferrum_session_cache_tokens", "Tokens in them, about", value=sessions.num_tokens
        )
