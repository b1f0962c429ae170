"""A peer that can run in several ways, in whichever is fastest for each phase."""

from __future__ import annotations

from collections.abc import Mapping

from ferrum.bench.compare_phases import ComparePhase
from ferrum.bench.peers.peer import Peer, PeerFailed


class BestConfiguration:
    """A Peer over others of the same engine, by the name of their configuration.

    Every configuration is measured once in a phase; the fastest then answers for it. One that fails is left
    out. Mutable: what was chosen. Closing it closes all of them.
    """

    def __init__(self, name: str, version: str, configurations: Mapping[str, Peer]) -> None:
        assert configurations
        self._name = name
        self._version = version
        self._configurations = dict(configurations)
        self._chosen: dict[str, str] = {}

    @property
    def name(self) -> str:
        return self._name

    @property
    def version(self) -> str:
        chosen = [f"{phase}: {configuration}" for phase, configuration in self._chosen.items()]
        return ", ".join([self._version, *chosen])

    def measure(self, phase: ComparePhase) -> float:
        if phase.name not in self._chosen:
            self._chosen[phase.name] = self._fastest(phase)
        return self._configurations[self._chosen[phase.name]].measure(phase)

    def close(self) -> None:
        for peer in self._configurations.values():
            peer.close()

    def _fastest(self, phase: ComparePhase) -> str:
        """Raises the last PeerFailed when none works."""
        rates: dict[str, float] = {}
        failure: PeerFailed | None = None
        for configuration, peer in self._configurations.items():
            try:
                # The first run of an engine is not its fastest.
                peer.measure(phase)
                rates[configuration] = peer.measure(phase)
            except PeerFailed as failed:
                failure = failed
        if not rates:
            assert failure is not None
            raise failure
        return max(rates, key=lambda configuration: rates[configuration])
