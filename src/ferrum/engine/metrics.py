"""The engine's numbers for Prometheus: an observer with a registry of its own."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge

from ferrum.core.errors import ContextLengthExceeded, InvalidRequest, QueueFull
from ferrum.core.events import (
    EngineFailed,
    Event,
    FirstToken,
    OutstandingAtClose,
    RequestAdmitted,
    RequestFinished,
    RequestPreempted,
    RequestQueued,
    RequestRejected,
    RequestSubmitted,
    StepFailed,
    StepRan,
    TokensDrafted,
    TokensEmitted,
)
from ferrum.core.request import FinishReason
from ferrum.engine.histogram import Histogram
from ferrum.engine.prefix_cache_metrics import PrefixCacheCollector
from ferrum.engine.recurrent_state_metrics import RecurrentStateCollector
from ferrum.engine.status import EngineStatus
from ferrum.engine.tally import Tally

_SHORT_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_LONG_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class EngineMetrics:
    """Counts events. ``status`` is asked for the gauges when somebody scrapes, so that they cannot drift."""

    def __init__(self, status: Callable[[], EngineStatus]) -> None:
        self.registry = CollectorRegistry()
        self._requests = self._counter("requests_total", "Requests that arrived")
        self._rejected = self._counter(
            "requests_rejected_total", "Requests refused before they waited", "error"
        )
        for refusal in (QueueFull, ContextLengthExceeded, InvalidRequest):
            self._rejected.labels(refusal.__name__)
        self._finished = self._counter("requests_finished_total", "Requests that ended", "finish_reason")
        for reason in FinishReason:
            self._finished.labels(reason.value)
        self._preemptions = self._counter("preemptions_total", "Running requests that had to give way")
        self._recomputed = self._counter(
            "recomputed_tokens_total", "Tokens to compute again after their request had to give way"
        )
        self._prompt_tokens = self._counter("prompt_tokens_total", "Prompt tokens of accepted requests")
        self._generated = self._tally("tokens_generated_total", "Tokens chosen")
        self._prefill_tokens = self._tally(
            "prefill_tokens_total", "Prompt tokens computed, recomputed ones too"
        )
        self._drafted = self._counter("draft_tokens_total", "Tokens drafted and computed")
        self._accepted = self._counter("accepted_draft_tokens_total", "Drafted tokens that were right")
        self._steps = self._tally("iterations_total", "Steps run")
        self._failed_steps = self._counter("steps_failed_total", "Steps that raised")
        self._failures = self._counter("failures_total", "Times that the engine stopped making steps")
        self._leaks = self._counter("resource_leaks_total", "Requests that ended with something outstanding")
        self._ttft = self._histogram("ttft_seconds", "From a request's arrival to its first token", _LONG_S)
        self._gap = self._histogram("itl_seconds", "Between two tokens of one request", _SHORT_S)
        self._duration = self._histogram(
            "request_duration_seconds", "From a request's arrival to its end", _LONG_S
        )
        self._step_duration = self._histogram("step_duration_seconds", "One step of the executor", _SHORT_S)
        self._step_tokens = self._histogram("step_tokens", "Tokens in one step", (1, 4, 16, 64, 256, 1024))
        self._gauge("num_requests_running", "Requests that share the steps", lambda: status().num_running)
        self._gauge("num_requests_waiting", "Requests that wait", lambda: status().num_waiting)
        self._gauge("kv_blocks", "KV blocks in all", lambda: status().num_kv_blocks)
        self._gauge("kv_blocks_used", "KV blocks held by requests", lambda: status().num_used_kv_blocks)
        self.registry.register(RecurrentStateCollector(lambda: status().recurrent_states))
        self.registry.register(PrefixCacheCollector(lambda: status().prefix_cache))

    def on(self, event: Event) -> None:
        match event:
            case TokensEmitted(gaps_s=gaps_s):
                self._generated.add(len(gaps_s))
                self._gap.observe_all(gaps_s)
            case TokensDrafted(num_drafted=num_drafted, num_accepted=num_accepted):
                self._drafted.inc(num_drafted)
                self._accepted.inc(num_accepted)
            case StepRan():
                self._on_step(event)
            case FirstToken(ttft_s=ttft_s):
                self._generated.add(1)
                self._ttft.observe(ttft_s)
            case RequestSubmitted():
                self._requests.inc()
            case RequestRejected(error=error):
                self._rejected.labels(error).inc()
            case RequestQueued(prompt_tokens=prompt_tokens):
                self._prompt_tokens.inc(prompt_tokens)
            case RequestFinished(reason=reason, duration_s=duration_s):
                self._finished.labels(reason.value).inc()
                self._duration.observe(duration_s)
            case RequestPreempted():
                self._preemptions.inc()
            case RequestAdmitted(recompute_tokens=recompute_tokens) if recompute_tokens:
                self._recomputed.inc(recompute_tokens)
            case StepFailed():
                self._failed_steps.inc()
            case EngineFailed():
                self._failures.inc()
            case OutstandingAtClose():
                self._leaks.inc()

    def _on_step(self, step: StepRan) -> None:
        self._steps.add(1)
        self._prefill_tokens.add(step.num_prefill_tokens)
        self._step_duration.observe(step.execute_s)
        self._step_tokens.observe(step.num_tokens)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"ferrum_engine_{name}", meaning, labels, registry=self.registry)

    def _tally(self, name: str, meaning: str) -> Tally:
        return Tally(f"ferrum_engine_{name}", meaning, self.registry)

    def _histogram(self, name: str, meaning: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"ferrum_engine_{name}", meaning, buckets, self.registry)

    def _gauge(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        Gauge(f"ferrum_engine_{name}", meaning, registry=self.registry).set_function(read)
