"""Finding out that drafts do not pay costs a small share of the time and no more, whoever asks for them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ferrum.core.drafting import Chances, DraftWish
from ferrum.core.step import SamplingInstruction, SequencePart
from ferrum.plan.plan_work import PlanWork
from ferrum.scheduling.speculation import Speculation
from ferrum.scheduling.step_pace import StepPace
from ferrum.testing.manual_clock import ManualClock

CHOICE = SamplingInstruction(0.0, 0, 1.0, 0.0, seed=0, position=0)
STEP_S, ROW_S = 0.0125, 0.001


class SlowDrafter:
    """As sure of itself as can be; each call takes ``draft_s`` of the clock. It never learns."""

    token_s = 0.0

    def __init__(self, clock: ManualClock, draft_s: float) -> None:
        self._clock = clock
        self._draft_s = draft_s
        self.num_calls = 0

    def prepare_startup(self) -> None: ...

    def chances(self, wishes: Sequence[DraftWish]) -> list[Chances]:
        return [(0.9, 0.8, 0.7, 0.6) for _ in wishes]

    def draft(self, wishes: Sequence[DraftWish], counts: Sequence[int]) -> list[tuple[int, ...]]:
        self.num_calls += 1
        self._clock.advance(self._draft_s)
        return [(5,) * count for count in counts]

    def leave(self, request_id: str) -> None: ...

    def close(self) -> None: ...


def taught() -> StepPace:
    pace = StepPace(PlanWork(weight_bytes=80, token_multiply_adds=100, output_multiply_adds=0, attention=()))
    for number in range(400):
        rows = 1 + number % 8
        parts = [SequencePart("d", (1,) * rows, 49, (), (CHOICE,) * rows, num_drafts=rows - 1)]
        pace.learn(parts, STEP_S + ROW_S * rows)
    return pace


def decode(num_steps: int, draft_s: float, num_right: int) -> tuple[float, int]:
    """Seconds that drafting lost (below 0: saved) in steps of ever new requests, and how often it drafted."""
    clock = ManualClock()
    drafter = SlowDrafter(clock, draft_s)
    speculation = Speculation(drafter, taught(), 4, most_rows=4, clock=clock)
    lost_s = 0.0
    for number in range(num_steps):
        started = clock()
        drafts = speculation.draft([DraftWish(f"r{number}", [1] * 50, 4, lambda _: CHOICE)])
        lost_s += clock() - started
        for draft in drafts.values():
            num_accepted = min(num_right, len(draft))
            lost_s += len(draft) * ROW_S - num_accepted * (STEP_S + ROW_S)
            speculation.accepted(num_accepted)
    return lost_s, drafter.num_calls


@pytest.mark.parametrize("draft_s", [0.0, 0.01, 0.1])
def test_drafts_that_are_never_right_cost_a_fiftieth_of_the_time_and_forty_steps(draft_s: float) -> None:
    num_steps = 8000
    lost_s, num_calls = decode(num_steps, draft_s, num_right=0)
    decode_s = num_steps * (STEP_S + ROW_S)
    assert lost_s < 0.021 * decode_s + 40 * (STEP_S + ROW_S) + draft_s + 4 * ROW_S
    # It is tried again all the same: texts change.
    assert num_calls > 0.5 * decode_s * 0.02 / (draft_s + 4 * ROW_S)


def test_drafts_that_save_more_than_they_cost_are_made_in_every_step() -> None:
    lost_s, num_calls = decode(500, draft_s=0.01, num_right=3)
    assert num_calls == 500
    assert lost_s < -5.0


def test_what_was_saved_once_is_no_licence_to_lose_it_all() -> None:
    clock = ManualClock()
    drafter = SlowDrafter(clock, 0.05)
    speculation = Speculation(drafter, taught(), 4, most_rows=4, clock=clock)
    wish = DraftWish("a", [1] * 50, 4, lambda _: CHOICE)
    for _ in range(1000):
        speculation.draft([wish])
        speculation.accepted(100)
    before = drafter.num_calls
    for _ in range(1000):
        speculation.draft([wish])
    lost_s = (drafter.num_calls - before) * (0.05 + 4 * ROW_S)
    assert lost_s < (101 + 0.021 * 1000) * (STEP_S + ROW_S) + 0.05


def test_one_call_that_was_held_up_does_not_end_drafting_for_long() -> None:
    clock = ManualClock()
    drafter = SlowDrafter(clock, 100.0)
    speculation = Speculation(drafter, taught(), 4, most_rows=4, clock=clock)
    wish = DraftWish("a", [1] * 50, 4, lambda _: CHOICE)
    assert speculation.draft([wish])
    waited = 1
    while not speculation.draft([wish]):
        waited += 1
    assert waited == pytest.approx(25 / 0.02, rel=0.01)
