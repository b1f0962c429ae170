"""Steps driven straight on a runtime: which rows they have, and whose time they measure."""

from __future__ import annotations

import numpy as np
import pytest

from ferrum.bench.direct_steps import DirectSteps
from ferrum.bench.phases import PHASES, Phase, PhaseKind, phase_named
from ferrum.core.errors import UnknownComponent
from ferrum.runtimes.protocol import LogitsDetail, StepBatch, StepOutput


class RecordingRuntime:
    """Keeps every batch; a step takes as many seconds as it has rows; the token chosen is the position."""

    numerics_id = "recorded"
    keeps_same_tokens_law = True
    num_blocks = 64
    block_tokens = 4
    context_length = 64
    vocabulary_size = 1000

    def __init__(self) -> None:
        self.batches: list[StepBatch] = []
        self.now = 0.0

    def run(self, batch: StepBatch, detail: LogitsDetail = LogitsDetail.NONE) -> StepOutput:
        self.batches.append(batch)
        self.now += len(batch.token_ids)
        chosen = np.zeros(0, np.int32) if batch.sampling is None else batch.sampling.position
        return StepOutput(chosen, np.zeros(0, np.uint64), np.zeros((0, 0), np.float32))

    def abort(self) -> None: ...
    def close(self) -> None: ...


def drive(num_sequences: int) -> tuple[RecordingRuntime, DirectSteps]:
    runtime = RecordingRuntime()
    steps = DirectSteps(runtime, num_sequences, 20, max_step_tokens=8, clock=lambda: runtime.now)
    return runtime, steps


def test_a_prefill_comes_in_chunks_and_chooses_a_token_at_its_end() -> None:
    runtime, steps = drive(1)
    assert steps.prefill(18) == [8.0, 8.0, 2.0]
    assert np.concatenate([batch.positions for batch in runtime.batches]).tolist() == list(range(18))
    assert [batch.output_rows.tolist() for batch in runtime.batches] == [[], [], [1]]
    assert runtime.batches[2].sampling is not None
    assert runtime.batches[2].sampling.position.tolist() == [18]


def test_a_decode_feeds_every_sequence_the_token_chosen_before() -> None:
    runtime, steps = drive(3)
    assert steps.decode(depth=10, num_steps=4) == [3.0] * 4
    for index, batch in enumerate(runtime.batches):
        assert batch.positions.tolist() == [10 + index] * 3
        assert batch.sequence_starts.tolist() == [0, 1, 2, 3]
        assert batch.output_rows.tolist() == [0, 1, 2]
        if index:
            assert batch.token_ids.tolist() == [10 + index] * 3


def test_sequences_have_blocks_of_their_own() -> None:
    runtime, steps = drive(3)
    steps.decode(depth=0, num_steps=1)
    tables = runtime.batches[0].block_tables
    assert tables.shape == (3, 5)
    assert len(set(tables.reshape(-1).tolist())) == 15


@pytest.mark.parametrize("phase", PHASES.values(), ids=list(PHASES))
def test_the_works_steps_are_the_steps_that_are_run(phase: Phase) -> None:
    short = Phase(phase.name, phase.kind, min(phase.num_tokens, 15), min(phase.num_sequences, 3), 5)
    runtime, steps = drive(short.num_sequences)
    if short.kind is PhaseKind.PREFILL:
        steps.prefill(short.num_tokens)
    else:
        steps.decode(short.depth, short.num_tokens)
    described = short.steps(8)
    assert [len(batch.token_ids) for batch in runtime.batches] == [step.num_tokens for step in described]
    assert [len(batch.output_rows) for batch in runtime.batches] == [step.num_outputs for step in described]
    starts = [[part.start for part in step.parts] for step in described]
    firsts = [batch.positions[batch.sequence_starts[:-1]].tolist() for batch in runtime.batches]
    assert firsts == starts


def test_a_phase_fits_a_short_context() -> None:
    assert PHASES["decode_deep"].fitted(2048) == Phase(
        "decode_deep", PhaseKind.DECODE, 32, num_sequences=1, depth=2016
    )
    assert PHASES["prefill"].fitted(100).num_tokens == 100
    assert PHASES["decode"].fitted(8192) is not None
    tiny = PHASES["decode"].fitted(20)
    assert (tiny.depth, tiny.longest_sequence) == (1, 20)


def test_an_unknown_phase_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownComponent, match="no phase named 'decod'; there are: batch_decode, decode"):
        phase_named("decod")
