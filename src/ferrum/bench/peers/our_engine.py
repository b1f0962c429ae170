"""Ferrum itself as a contestant: through LLM, as its users call it."""

from __future__ import annotations

from ferrum.bench.bench_model import BenchModel
from ferrum.bench.compare_phases import ComparePhase
from ferrum.bench.peers.peer import PeerFailed
from ferrum.bench.phases import PhaseKind
from ferrum.bench.source_commit import source_commit


class OurEngine:
    """A Peer over a loaded model, which its maker closes."""

    name = "ferrum"

    def __init__(self, bench: BenchModel) -> None:
        self._bench = bench
        self.version = f"commit {source_commit() or 'unknown'}, kernels {bench.runtime.kernel_set}"

    def measure(self, phase: ComparePhase) -> float:
        prompts = [self._bench.random_prompt(phase.prompt_tokens) for _ in range(phase.num_sequences)]
        self._bench.generate(prompts, phase.output_tokens)
        probe = self._bench.probe
        if phase.kind is PhaseKind.PREFILL:
            return phase.prompt_tokens / probe.first_tokens_s[0]
        if phase.num_sequences == 1:
            return len(probe.gaps_s) / sum(probe.gaps_s)
        # The first step after the prompts still shares their end.
        together = probe.decode_steps(phase.num_sequences)[1:]
        if not together:
            raise PeerFailed("its answers came one after the other, not together")
        return phase.num_sequences * len(together) / sum(timed.wall_s for timed in together)

    def close(self) -> None:
        """The model is its maker's."""
