"""How many tokens are drafted follows what a step costs and how often guesses were right."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ferrum.core.drafting import Chances, DraftWish
from ferrum.core.step import SamplingInstruction, SequencePart
from ferrum.plan.plan_work import PlanWork
from ferrum.scheduling.speculation import Speculation
from ferrum.scheduling.step_pace import StepPace

CHOICE = SamplingInstruction(0.0, 0, 1.0, 0.0, seed=0, position=0)
# Weights that take as long to read as about eight rows to compute.
WORK = PlanWork(weight_bytes=80, token_multiply_adds=100, output_multiply_adds=0, attention=())


class FixedDrafter:
    """As sure as it is told, of each request alike. ``counts`` are what was asked of it."""

    def __init__(self, chance: float, token_s: float = 0.0) -> None:
        self._chance = chance
        self.token_s = token_s
        self.counts: Sequence[int] = ()

    def prepare_startup(self) -> None: ...

    def chances(self, wishes: Sequence[DraftWish]) -> list[Chances]:
        return [tuple(self._chance**count for count in range(1, wish.most + 1)) for wish in wishes]

    def draft(self, wishes: Sequence[DraftWish], counts: Sequence[int]) -> list[tuple[int, ...]]:
        self.counts = counts
        return [(5,) * count for count in counts]

    def leave(self, request_id: str) -> None: ...

    def close(self) -> None: ...


def counts(
    chance: float,
    num_sequences: int = 1,
    *,
    pace: StepPace | None = None,
    most_rows: int = 1000,
    token_s: float = 0.0,
) -> list[int]:
    drafter = FixedDrafter(chance, token_s)
    speculation = Speculation(drafter, pace or taught(), 16, most_rows)
    wishes = [DraftWish(f"r{index}", [1] * 50, 16, lambda _: CHOICE) for index in range(num_sequences)]
    drafts = speculation.draft(wishes)
    assert {name: len(draft) for name, draft in drafts.items()} == {
        wish.request_id: count for wish, count in zip(wishes, drafter.counts, strict=True) if count
    }
    return list(drafter.counts)


def taught(row_s: float = 0.125, base_s: float = 1.0) -> StepPace:
    """A pace that has seen steps of all sizes take ``base_s`` and ``row_s`` for each row."""
    pace = StepPace(WORK)
    for number in range(400):
        num_rows = 1 + number % 16
        parts = [SequencePart("d", (1,) * num_rows, 49, (), (CHOICE,) * num_rows, num_drafts=num_rows - 1)]
        pace.learn(parts, base_s + row_s * num_rows)
    return pace


def test_the_surer_the_guesses_the_more_are_drafted() -> None:
    lengths = [counts(chance)[0] for chance in (0.02, 0.3, 0.6, 0.8, 0.95)]
    assert lengths == sorted(lengths)
    assert lengths[0] == 0
    assert lengths[1] >= 1
    assert lengths[-1] > 2 * lengths[2] >= 4


def test_a_guess_that_costs_more_than_it_brings_is_not_made() -> None:
    """A row takes a ninth of the step, so a token must be right more often than that, and a margin."""
    assert counts(0.09) == [0]
    assert counts(0.2)[0] == 1


def test_rows_that_cost_as_much_as_steps_are_not_drafted() -> None:
    assert counts(0.7, pace=taught(row_s=1.0, base_s=0.01)) == [0]


def test_a_step_that_computes_already_drafts_less() -> None:
    """Sixteen sequences fill the machine: what one more row brings is less than what the step brings."""
    alone, together = counts(0.8), counts(0.8, num_sequences=16)
    assert alone[0] >= 3
    assert sum(together) / 16 < alone[0] / 2
    assert sum(counts(0.5, num_sequences=16)) == 0


def test_drafts_of_all_requests_together_have_a_bound() -> None:
    assert sum(counts(0.99, num_sequences=3, most_rows=7)) == 7


def test_what_drafting_itself_takes_counts() -> None:
    free, dear = counts(0.8)[0], counts(0.8, token_s=0.4)[0]
    assert 0 < dear < free
    assert counts(0.8, token_s=2.0) == [0]


def test_the_surest_guesses_come_first() -> None:
    class Unequal(FixedDrafter):
        def chances(self, wishes: Sequence[DraftWish]) -> list[Chances]:
            return [(0.95,) * 4, (0.3,) * 4, ()]

    drafter = Unequal(0.0)
    speculation = Speculation(drafter, taught(), 4, most_rows=4)
    wishes = [DraftWish(name, [1] * 9, 4, lambda _: CHOICE) for name in "abc"]
    assert speculation.draft(wishes) == {"a": (5,) * 4}
    assert list(drafter.counts) == [4, 0, 0]


@pytest.mark.parametrize("row_s", [0.05, 0.125, 0.3])
def test_rows_are_foreseen_from_what_steps_took(row_s: float) -> None:
    pace = taught(row_s)
    assert pace.predict_row(49) == pytest.approx(row_s, rel=0.15)
    assert pace.predict_rows([49]) == pytest.approx(1.0 + row_s, rel=0.1)
