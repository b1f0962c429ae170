"""Rounds of engines that take the rates they are told."""

from __future__ import annotations

import pytest

from ferrum.bench.compare_phases import COMPARE_PHASES, ComparePhase
from ferrum.bench.compare_report import PeerChoice, parse_peers
from ferrum.bench.comparison import ComparisonRounds
from ferrum.bench.peers.peer import PeerFailed, PhaseUnsupported
from ferrum.core.errors import UnknownComponent

DECODE, BATCH = COMPARE_PHASES["decode"], COMPARE_PHASES["batch16"]


class TurnTaker:
    """Measures the next of its rates and notes its turn; an exception among them is raised."""

    def __init__(self, name: str, rates: list[float | Exception], turns: list[str]) -> None:
        self.name = name
        self.version = f"{name} 1"
        self._rates = iter(rates)
        self._turns = turns

    def measure(self, phase: ComparePhase) -> float:
        self._turns.append(f"{self.name} {phase.name}")
        rate = next(self._rates)
        if isinstance(rate, Exception):
            raise rate
        return rate

    def close(self) -> None: ...


def test_engines_take_turns_and_ratios_are_of_one_round() -> None:
    turns: list[str] = []
    # The machine is half as fast in the second round; the first measurement of each is a warm-up.
    ours = TurnTaker("ferrum", [1.0, 300.0, 150.0, 320.0], turns)
    peer = TurnTaker("peer", [1.0, 100.0, 50.0, 100.0], turns)
    comparison = ComparisonRounds(ours, [peer]).run([DECODE], pairs=3)
    assert turns == ["ferrum decode", "peer decode"] * 4
    [result] = comparison.phases
    assert result.ratio.median == 3.0
    assert (result.ratio.lowest, result.ratio.highest) == (3.0, 3.2)
    assert comparison.ours["decode"].median == 300.0
    assert comparison.versions == {"ferrum": "ferrum 1", "peer": "peer 1"}
    figures = comparison.as_json()["comparisons"]
    assert isinstance(figures, list)
    assert set(figures[0]) == {"phase", "peer", "ours_tokens_per_second", "peer_tokens_per_second", "ratio"}


def test_every_turn_begins_when_the_engine_before_has_come_to_rest() -> None:
    turns: list[str] = []
    ours, peer = TurnTaker("ferrum", [1.0] * 3, turns), TurnTaker("peer", [1.0] * 3, turns)
    ComparisonRounds(ours, [peer], wait=lambda: turns.append("quiet")).run([DECODE], pairs=2)
    assert turns[2:] == ["quiet", "ferrum decode", "quiet", "peer decode"] * 2


def test_a_peer_that_fails_is_named_and_the_others_go_on() -> None:
    turns: list[str] = []
    ours = TurnTaker("ferrum", [9.0] * 6, turns)
    weak = TurnTaker("weak", [3.0, 3.0, PeerFailed("out of memory"), 2.0, 2.0, 2.0], turns)
    narrow = TurnTaker("narrow", [4.5, 4.5, 4.5, PhaseUnsupported("batch16")], turns)
    comparison = ComparisonRounds(ours, [weak, narrow]).run([DECODE, BATCH], pairs=2)
    figures = {(one.phase.name, one.peer): one.ratio.median for one in comparison.phases}
    assert figures == {("decode", "narrow"): 2.0, ("batch16", "weak"): 4.5}
    assert comparison.not_measured == {
        "weak decode": "out of memory",
        "narrow batch16": "batch16 is not measured with this engine",
    }
    # Neither is asked again.
    assert turns.count("weak decode") == 3
    assert turns.count("narrow batch16") == 1


def test_without_peers_our_own_rates_are_still_reported() -> None:
    comparison = ComparisonRounds(TurnTaker("ferrum", [5.0] * 3, []), []).run([DECODE], pairs=2)
    assert comparison.ours["decode"].repetitions == 2
    assert not comparison.phases


def test_peers_are_named_with_or_without_their_place() -> None:
    assert parse_peers("llama-server=/a/b, xllamacpp") == [
        PeerChoice("llama-server", "/a/b"),
        PeerChoice("xllamacpp", None),
    ]
    assert parse_peers("") == []
    with pytest.raises(UnknownComponent, match="no peer named 'llama'"):
        parse_peers("llama=/a")
