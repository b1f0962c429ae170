from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_machine import WORK, SimulatedMachine

from ferrum.core.step import SamplingInstruction, SequencePart
from ferrum.plan.plan_work import UNIFORM_WORK
from ferrum.scheduling.step_pace import StepPace

CHOICE = SamplingInstruction(0.0, 0, 1.0, 0.0, seed=1, position=1)


def decode(position: int) -> SequencePart:
    return SequencePart("d", (1,), position, (), (CHOICE,))


def chunk(start: int, num_tokens: int) -> SequencePart:
    return SequencePart("p", (1,) * num_tokens, start, (), ())


def taught(machine: SimulatedMachine, steps: int = 60) -> StepPace:
    """A pace that has seen prompts being computed alone, decodes, and both together."""
    pace = StepPace(WORK)
    for number in range(steps):
        alone = [chunk(number * 64, 64)]
        decodes = [decode(100 + number) for _ in range(8)]
        for parts in (alone, decodes, [*decodes, chunk(number * 40, 40)]):
            pace.learn(parts, machine.seconds(parts))
    return pace


@pytest.mark.parametrize("slowness", [0.05, 1.0, 30.0])
def test_it_learns_any_machine(slowness: float) -> None:
    machine = SimulatedMachine(slowness)
    pace = taught(machine)
    decodes = [decode(200) for _ in range(8)]
    alone = machine.seconds(decodes)
    assert pace.predict_decodes(decodes) == pytest.approx(alone, rel=0.1)
    for start in (0, 1000, 3000):
        added = machine.seconds([*decodes, chunk(start, 48)]) - alone
        assert pace.predict_chunk(start, 48) == pytest.approx(added, rel=0.25)


def test_whole_steps_are_the_sum_of_their_parts() -> None:
    machine = SimulatedMachine()
    pace = taught(machine)
    decodes = [decode(200) for _ in range(8)]
    for parts in (decodes, [chunk(64, 64)], [*decodes, chunk(400, 40), chunk(1000, 24)]):
        assert pace.predict(parts) == pytest.approx(machine.seconds(parts), rel=0.25)


def test_steps_that_were_interrupted_mislead_it_little() -> None:
    draw = random.Random(1)
    pace = taught(SimulatedMachine(noise=lambda: 25.0 if draw.random() < 0.05 else draw.uniform(0.95, 1.05)))
    decodes = [decode(200) for _ in range(8)]
    assert pace.predict_decodes(decodes) == pytest.approx(SimulatedMachine().seconds(decodes), rel=0.25)


def test_the_last_decodes_being_slow_says_little_of_the_next() -> None:
    """A prompt that is being taken in beside them slows a few; it is predicted for by what was before."""
    machine, pace = SimulatedMachine(), taught(SimulatedMachine())
    decodes = [decode(200) for _ in range(8)]
    for slowness in [1.0] * 40 + [1.5] * 15:
        pace.learn(decodes, slowness * machine.seconds(decodes))
    assert pace.predict_decodes(decodes) == pytest.approx(machine.seconds(decodes), rel=0.01)


def test_decodes_that_stay_slow_are_predicted_so() -> None:
    machine, pace = SimulatedMachine(), taught(SimulatedMachine())
    decodes = [decode(200) for _ in range(8)]
    for _ in range(40):
        pace.learn(decodes, 3.0 * machine.seconds(decodes))
    assert pace.predict_decodes(decodes) == pytest.approx(3.0 * machine.seconds(decodes), rel=0.01)


def test_a_prompt_beside_decodes_that_were_slow_before_it_is_not_thought_cheap() -> None:
    """What a mixed step takes longer than its decodes is the prompt's, not hidden in too slow decodes."""
    machine, pace = SimulatedMachine(), taught(SimulatedMachine())
    decodes = [decode(200) for _ in range(8)]
    for slowness in [1.0] * 40 + [1.5] * 15:
        pace.learn(decodes, slowness * machine.seconds(decodes))
    both = [*decodes, chunk(2000, 30)]
    for _ in range(30):
        pace.learn(both, machine.seconds(both))
    added = machine.seconds(both) - machine.seconds(decodes)
    assert pace.predict_chunk(2000, 30) == pytest.approx(added, rel=0.02)


def test_tokens_that_could_only_come_say_nothing_of_prompts() -> None:
    """They are decodes of several rows, whose cost beside others is not that of a prompt's tokens."""
    machine, pace = SimulatedMachine(), taught(SimulatedMachine())
    before = pace.predict_chunk(500, 64)
    forced = SequencePart("f", (1, 2, 3), 300, (), (CHOICE,), num_forced=2)
    decodes = [*(decode(200) for _ in range(7)), forced]
    for _ in range(30):
        pace.learn(decodes, 2.0 * machine.seconds(decodes))
    assert pace.predict_chunk(500, 64) == before
    assert pace.predict_decodes(decodes) == pytest.approx(2.0 * machine.seconds(decodes), rel=0.02)


@given(seconds=st.floats(0.0, 1.0), start=st.integers(0, 8000), most=st.integers(1, 600))
def test_a_chunk_within_a_time_is_the_longest_there_is(seconds: float, start: int, most: int) -> None:
    pace = StepPace(WORK)
    tokens = pace.tokens_within(seconds, start, most)
    assert 0 <= tokens <= most
    assert tokens == 0 or pace.predict_chunk(start, tokens) <= seconds
    assert tokens == most or pace.predict_chunk(start, tokens + 1) > seconds


def test_nothing_takes_no_time() -> None:
    assert StepPace(WORK).predict_decodes([]) == 0.0


def test_a_clock_that_stands_still_teaches_nothing() -> None:
    pace = StepPace(WORK)
    before = pace.predict_decodes([decode(5)])
    pace.learn([decode(5)], 0.0)
    assert pace.predict_decodes([decode(5)]) == before


def test_without_a_plan_it_still_learns_what_tokens_cost() -> None:
    pace = StepPace(UNIFORM_WORK)
    for _ in range(50):
        pace.learn([decode(9)], 0.2)
        pace.learn([chunk(0, 10)], 1.0)
    assert pace.predict_decodes([decode(9)]) == pytest.approx(0.2, rel=0.05)
    assert pace.predict_chunk(0, 20) == pytest.approx(2.0, rel=0.6)


def test_decodes_teach_the_same_whether_or_not_predictions_are_asked_for_between_them() -> None:
    machine = SimulatedMachine()
    asked, unasked = StepPace(WORK), StepPace(WORK)
    for number in range(100):
        step = [decode(number + row) for row in range(1 + number % 7)]
        for pace in (asked, unasked):
            pace.learn(step, machine.seconds(step) * (1.1 if number % 2 else 0.9))
        asked.predict_decodes(step)
    assert unasked.predict_decodes([decode(50)]) == pytest.approx(
        asked.predict_decodes([decode(50)]), rel=0.05
    )
