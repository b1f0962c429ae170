"""The time of a phase through the whole engine: scheduler, batch building, output, as LLM's users see it."""

from __future__ import annotations

from dataclasses import dataclass

from ferrum.bench.bench_model import BenchModel
from ferrum.bench.phases import Phase, PhaseKind
from ferrum.bench.statistics import median
from ferrum.bench.timed_runtime import seconds_between_decodes
from ferrum.core.config import SchedulerConfig


@dataclass(frozen=True, slots=True)
class EngineRun:
    """A phase through LLM.generate. ``seconds`` compare with the sum of its steps on the runtime alone.

    Decode: the median step that served all sequences and nothing else, times the number of steps; steps in
    which prompts were still being computed do not count. Prefill: from submission to the first token.
    ``between_steps_s`` is the median pause of the runtime between two such decodes: all that Python does.
    """

    seconds: float
    between_steps_s: float | None


def run_engine(bench: BenchModel, phase: Phase) -> EngineRun | None:
    """None when no step served all sequences and nothing else."""
    if phase.kind is PhaseKind.PREFILL:
        bench.generate([bench.random_prompt(phase.num_tokens)], 1)
        return EngineRun(bench.probe.first_tokens_s[0], None)
    prompts = [bench.random_prompt(phase.depth) for _ in range(phase.num_sequences)]
    # Sequences begin one after the other, as their prompts are computed; all must still be there at the end.
    bench.generate(prompts, min(_num_outputs(phase), bench.context_length - phase.depth))
    steps = bench.probe.decode_steps(phase.num_sequences)
    # The first one follows a prefill, whose end it may share.
    walls = [timed.wall_s for timed in steps[1 : 1 + phase.num_tokens]]
    if not walls:
        return None
    pause = seconds_between_decodes(bench.timed.calls, phase.num_sequences)
    return EngineRun(median(walls) * phase.num_tokens, pause)


def most_tokens_of_a_sequence(phase: Phase) -> int:
    """Room that a sequence of the phase needs in the engine."""
    if phase.kind is PhaseKind.PREFILL:
        return phase.num_tokens + 1
    return phase.depth + _num_outputs(phase)


def _num_outputs(phase: Phase) -> int:
    """Enough output for ``phase.num_tokens`` steps of all sequences: early ones run on while prompts wait."""
    chunk = SchedulerConfig().active_decode_prefill_chunk
    num_prefill_steps = phase.num_sequences * -(-phase.depth // chunk) if phase.num_sequences > 1 else 0
    return phase.num_tokens + 2 + num_prefill_steps
