"""``ferrum bench compare``: opens our engine and the peers, and closes them whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from ferrum import environment
from ferrum.bench.bench_model import BenchModel, BenchNeeds, ModelChoice
from ferrum.bench.compare_phases import ComparePhase
from ferrum.bench.comparison import Comparison, ComparisonRounds
from ferrum.bench.measured_on import MeasuredOn, measured_on
from ferrum.bench.peers.orderly_end import orderly_end
from ferrum.bench.peers.our_engine import OurEngine
from ferrum.bench.peers.peer import Peer, PeerFailed, PeerSetup, PeerUnavailable
from ferrum.bench.peers.peer_table import opener_of
from ferrum.bench.quiet_machine import wait_until_quiet
from ferrum.core.errors import InternalError
from ferrum.weights.model_store import ModelStore
from ferrum.weights.open_model import open_model
from ferrum.weights.progress_reporter import ProgressReporter


@dataclass(frozen=True, slots=True)
class PeerChoice:
    """A peer by name, and where it is when it cannot be found."""

    name: str
    program: str | None


def parse_peers(text: str) -> list[PeerChoice]:
    """ "llama-server=/path/to/it,xllamacpp". Raises UnknownComponent for a name nobody knows."""
    choices = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, program = entry.partition("=")
        opener_of(name)
        choices.append(PeerChoice(name, program or None))
    return choices


@dataclass(frozen=True, slots=True)
class CompareReport:
    measured_on: MeasuredOn
    comparison: Comparison

    def as_json(self) -> dict[str, object]:
        return {**self.measured_on.as_json(), **self.comparison.as_json()}


def report_comparison(
    choice: ModelChoice,
    peers: Sequence[PeerChoice],
    phases: Sequence[ComparePhase],
    pairs: int,
    reporter: ProgressReporter,
    on_measure: Callable[[int, str, str], None],
) -> CompareReport:
    """Raises ModelError, InvalidConfig or ResourceExhausted for what concerns our own engine."""
    path = open_model(choice.argument, ModelStore(environment.model_directory()), reporter).path
    needs = BenchNeeds(
        sequence_tokens=max(phase.sequence_tokens for phase in phases) + 1,
        num_sequences=max(phase.num_sequences for phase in phases),
    )
    with orderly_end(), BenchModel(choice, needs, reporter) as bench, ExitStack() as stack:
        not_measured: dict[str, str] = {}
        opened: list[Peer] = []
        for wanted in peers:
            setup = PeerSetup(path, bench.model.threads.count, bench.runtime.vocabulary_size, wanted.program)
            try:
                peer = opener_of(wanted.name)(setup)
            except (PeerUnavailable, PeerFailed) as problem:
                not_measured[wanted.name] = problem.reason
                continue
            stack.callback(peer.close)
            opened.append(peer)
        rounds = ComparisonRounds(OurEngine(bench), opened, not_measured, on_measure, wait_until_quiet)
        try:
            comparison = rounds.run(phases, pairs)
        except PeerFailed as failed:
            raise InternalError(f"our own engine could not be measured: {failed.reason}") from failed
        return CompareReport(measured_on(bench), comparison)
