"""Ours and other engines by turns: medians of ratios within a round, since a machine's speed drifts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ferrum.bench.compare_phases import ComparePhase
from ferrum.bench.peers.peer import Peer, PeerFailed, PhaseUnsupported
from ferrum.bench.statistics import Spread, spread_of


@dataclass(frozen=True, slots=True)
class PhaseComparison:
    """One phase against one peer: tokens per second of each round, of both."""

    phase: ComparePhase
    peer: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...]

    @property
    def ratio(self) -> Spread:
        """Ours over theirs, round by round."""
        return spread_of([ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)])

    def as_json(self) -> dict[str, object]:
        return {
            "phase": self.phase.name,
            "peer": self.peer,
            "ours_tokens_per_second": spread_of(self.ours).as_json(),
            "peer_tokens_per_second": spread_of(self.theirs).as_json(),
            "ratio": self.ratio.as_json(),
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """``not_measured`` says of a peer, or of "peer phase", why there is no figure."""

    phases: tuple[PhaseComparison, ...]
    ours: Mapping[str, Spread]
    versions: Mapping[str, str]
    not_measured: Mapping[str, str]

    def as_json(self) -> dict[str, object]:
        return {
            "versions": dict(self.versions),
            "not_measured": dict(self.not_measured),
            "ours": {name: spread.as_json() for name, spread in self.ours.items()},
            "comparisons": [one.as_json() for one in self.phases],
        }


@dataclass(slots=True)
class ComparisonRounds:
    """Measures round by round: ours, then each peer, phase after phase. Used once, by ``run``."""

    ours: Peer
    peers: Sequence[Peer]
    not_measured: dict[str, str] = field(default_factory=dict)
    on_measure: Callable[[int, str, str], None] = lambda pair, phase, engine: None
    # Called before each turn; returns when the engine before has come to rest.
    wait: Callable[[], object] = lambda: None

    def run(self, phases: Sequence[ComparePhase], pairs: int) -> Comparison:
        """One unmeasured run of each engine before each phase: what is built on first use is not its speed.

        Raises PeerFailed when our own engine fails; a peer that fails is left out of the phase from then on.
        """
        compared: list[PhaseComparison] = []
        all_ours: dict[str, Spread] = {}
        for phase in phases:
            self._warm_up(phase)
            ours, theirs = self._measure(phase, pairs)
            all_ours[phase.name] = spread_of(ours)
            compared += [
                PhaseComparison(phase, name, tuple(ours), tuple(rates))
                for name, rates in theirs.items()
                if len(rates) == pairs
            ]
        versions = {peer.name: peer.version for peer in (self.ours, *self.peers)}
        return Comparison(tuple(compared), all_ours, versions, dict(self.not_measured))

    def _warm_up(self, phase: ComparePhase) -> None:
        self.ours.measure(phase)
        for peer in self.peers:
            self._measure_peer(peer, phase)

    def _takes_part(self, peer: Peer, phase: ComparePhase) -> bool:
        return f"{peer.name} {phase.name}" not in self.not_measured

    def _measure_peer(self, peer: Peer, phase: ComparePhase) -> float | None:
        """None when it does not have the phase, or broke in it."""
        try:
            return peer.measure(phase)
        except (PeerFailed, PhaseUnsupported) as problem:
            self.not_measured[f"{peer.name} {phase.name}"] = str(problem)
            return None

    def _measure(self, phase: ComparePhase, pairs: int) -> tuple[list[float], dict[str, list[float]]]:
        ours: list[float] = []
        theirs: dict[str, list[float]] = {peer.name: [] for peer in self.peers}
        for pair in range(pairs):
            self.on_measure(pair, phase.name, self.ours.name)
            self.wait()
            ours.append(self.ours.measure(phase))
            for peer in self.peers:
                if not self._takes_part(peer, phase):
                    continue
                self.on_measure(pair, phase.name, peer.name)
                self.wait()
                rate = self._measure_peer(peer, phase)
                if rate is not None:
                    theirs[peer.name].append(rate)
        return ours, theirs
