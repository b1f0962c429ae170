"""A draft model keeps up with the answers, repeats nothing it knows, and rests where it does not pay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from ferrum.cache.block_pool import DRAFT_KV_BLOCK, BlockPool
from ferrum.cache.cache_manager import CacheManager
from ferrum.core.drafting import DraftWish
from ferrum.core.ledger import LifecycleLedger
from ferrum.core.step import SamplingInstruction, StepPlan
from ferrum.execution.executor import ExecutorCapacity
from ferrum.execution.speculation.model_drafter import ModelDrafter
from ferrum.runtimes.protocol import StepAborted
from ferrum.testing.manual_clock import ManualClock
from ferrum.testing.scripted_executor import History, ScriptedExecutor


def _counting(request_id: str, history: History, sampling: SamplingInstruction) -> int:
    """The model: one more than the last token. It reads its own cache, so a gap there shows."""
    assert len(history) == sampling.position
    assert -1 not in history
    return history[-1] + 1


class Desk:
    """A drafter, what it runs on, and one request that it drafts for."""

    def __init__(
        self,
        num_blocks: int = 64,
        step_tokens: int = 16,
        choose: Callable[[str, History, SamplingInstruction], int] = _counting,
        vocabulary_size: int = 258,
    ) -> None:
        self.ledger = LifecycleLedger()
        self.executor = ScriptedExecutor(
            choose=choose, capacity=ExecutorCapacity(num_blocks, 4, 256, 258), keeps_plans=True
        )
        self.cache = CacheManager(BlockPool(num_blocks, self.ledger, DRAFT_KV_BLOCK), 4)
        self.drafter = ModelDrafter(
            self.executor, self.cache, vocabulary_size, step_tokens, clock=lambda: 0.0
        )

    def wish(self, token_ids: Sequence[int], most: int = 4, name: str = "a") -> DraftWish:
        def choice_after(drafts: tuple[int, ...]) -> SamplingInstruction:
            return SamplingInstruction(0.0, 0, 1.0, 0.0, 7, len(token_ids) + len(drafts), logprobs=5)

        return DraftWish(name, token_ids, most, choice_after)

    def draft(self, token_ids: Sequence[int], count: int = 4, name: str = "a") -> tuple[int, ...]:
        wish = self.wish(token_ids, name=name)
        self.drafter.chances([wish])
        return self.drafter.draft([wish], [count])[0]

    @property
    def computed(self) -> list[list[int]]:
        """Tokens of every part that was computed, in order; they are forgotten."""
        plans, self.executor.plans = self.executor.plans, []
        return [list(part.token_ids) for plan in plans for part in plan.parts]


Desks = Callable[..., Desk]


@pytest.fixture
def desks() -> Iterator[Desks]:
    """Makes desks; all of them are closed and hold nothing afterwards."""
    made: list[Desk] = []

    def make(**arguments: Any) -> Desk:
        made.append(Desk(**arguments))
        return made[-1]

    yield make
    for desk in made:
        desk.drafter.close()
        assert desk.ledger.outstanding() == {}


def test_a_prompt_is_computed_once_and_then_only_what_is_new(desks: Desks) -> None:
    desk = desks()
    assert desk.draft([1, 2, 3]) == (4, 5, 6, 7)
    assert desk.computed == [[1, 2, 3], [4], [5], [6]]
    # All right, and one more: the last draft was chosen and not computed.
    assert desk.draft([1, 2, 3, 4, 5, 6, 7, 8], 2) == (9, 10)
    assert desk.computed == [[7, 8], [9]]
    # The first was right.
    assert desk.draft([1, 2, 3, 4, 5, 6, 7, 8, 9, 40]) == (41, 42, 43, 44)
    assert desk.computed == [[40], [41], [42], [43]]
    # None was.
    assert desk.draft([1, 2, 3, 4, 5, 6, 7, 8, 9, 40, 60], 4) == (61, 62, 63, 64)
    assert desk.computed == [[60], [61], [62], [63]]
    # The first was, and the answer went on without the draft meanwhile.
    assert desk.draft([1, 2, 3, 4, 5, 6, 7, 8, 9, 40, 60, 61, 80, 81, 82], 1) == (83,)
    assert desk.computed == [[80, 81, 82]]


def test_no_log_probabilities_are_asked_of_the_draft(desks: Desks) -> None:
    desk = desks()
    desk.draft([1, 2, 3])
    choices = [choice for plan in desk.executor.plans for part in plan.parts for choice in part.choices]
    assert {choice.logprobs for choice in choices} == {None}
    assert {choice.seed for choice in choices} == {7}
    assert [choice.position for choice in choices] == [3, 4, 5, 6]


def test_a_step_that_did_not_happen_is_drafted_for_again(desks: Desks) -> None:
    desk = desks()
    assert desk.draft([1, 2, 3]) == desk.draft([1, 2, 3]) == (4, 5, 6, 7)


def test_a_long_prompt_is_caught_up_with_piece_by_piece(desks: Desks) -> None:
    desk, prompt = desks(step_tokens=16), list(range(50))
    assert [desk.draft(prompt) for _ in range(4)] == [(), (), (), (50, 51, 52, 53)]
    assert [len(each) for each in desk.computed] == [16, 16, 16, 2, 1, 1, 1]


def test_a_draft_step_that_is_given_up_leaves_no_gap(desks: Desks) -> None:
    desk = desks()

    def give_up(plan: StepPlan) -> None:
        desk.executor.before_step = None
        raise StepAborted

    desk.executor.before_step = give_up
    assert desk.draft([1, 2, 3]) == ()
    assert desk.draft([1, 2, 3]) == (4, 5, 6, 7)


def test_a_token_that_only_fills_the_vocabulary_up_is_no_draft(desks: Desks) -> None:
    desk = desks(vocabulary_size=6)
    assert desk.draft([1, 2, 3]) == (4, 5)


def test_a_token_the_draft_cannot_read_is_not_given_to_it(desks: Desks) -> None:
    desk = desks()
    assert desk.draft([1, 2, 300]) == ()
    assert desk.computed == []


def test_leaving_gives_the_blocks_back_and_forgets(desks: Desks) -> None:
    desk = desks()
    desk.draft([1, 2, 3, 4, 5])
    assert desk.ledger.outstanding() == {"a": {"draft_kv_block": 2}}
    desk.drafter.leave("a")
    desk.drafter.leave("a")
    assert desk.ledger.outstanding() == {}
    desk.draft([1, 2, 3])
    assert desk.computed[-4] == [1, 2, 3]
    desk.drafter.close()
    assert desk.executor.is_closed


def test_requests_draft_together_in_as_many_steps_as_the_longest(desks: Desks) -> None:
    desk = desks()
    wishes = [desk.wish([1, 2, 3], name="a"), desk.wish([10], name="b"), desk.wish([20], name="c")]
    desk.drafter.chances(wishes)
    assert desk.drafter.draft(wishes, [1, 3, 0]) == [(4,), (11, 12, 13), ()]
    assert [len(plan.parts) for plan in desk.executor.plans] == [2, 1, 1]


def test_drafts_that_do_not_pay_pause_longer_each_time(desks: Desks) -> None:
    desk, tokens = desks(), [1, 2, 3]
    tried = []
    for number in range(200):
        wish = desk.wish(tokens)
        (chances,) = desk.drafter.chances([wish])
        if chances:
            tried.append(number)
            desk.drafter.draft([wish], [0])
        tokens.append(9)
    assert tried == [0, 16, 48, 112]
    assert desk.computed == []


@pytest.mark.parametrize(("offset", "expected"), [(0, 0.9), (1, 0.2)])
def test_chances_follow_what_came(desks: Desks, offset: int, expected: float) -> None:
    desk, tokens = desks(), [1]
    for _ in range(30):
        desk.draft(tokens, 2)
        tokens += [tokens[-1] + 1 + offset]
    (chances,) = desk.drafter.chances([desk.wish(tokens)])
    assert chances[0] > expected if offset == 0 else chances[0] < expected
    assert chances[1] == pytest.approx(chances[0] ** 2)


def test_a_new_request_begins_with_how_often_the_two_models_agreed_before(desks: Desks) -> None:
    def first_chance(offset: int) -> float:
        desk = desks()
        for name in map(str, range(10)):
            tokens = [1]
            for _ in range(4):
                desk.draft(tokens, 1, name)
                tokens += [tokens[-1] + 1 + offset]
            desk.drafter.leave(name)
        return desk.drafter.chances([desk.wish([1], name="new")])[0][0]

    assert first_chance(offset=0) > 0.9
    assert first_chance(offset=1) < 0.25


def test_seconds_of_a_token_are_what_most_steps_take_and_are_measured_again_when_it_did_not_pay(
    desks: Desks,
) -> None:
    desk = desks()
    clock = ManualClock()
    step_s = 0.002
    desk.executor.before_step = lambda _: clock.advance(step_s)
    drafter = ModelDrafter(desk.executor, desk.cache, 258, 16, clock=clock)

    def draft(number: int, count: int) -> None:
        wish = desk.wish([1, 2, number % 200], name=f"r{number}")
        drafter.chances([wish])
        drafter.draft([wish], [count])
        drafter.leave(wish.request_id)

    for number in range(20):
        draft(number, 2)
    assert drafter.token_s == pytest.approx(0.002)
    step_s = 0.5  # held up once
    draft(20, 2)
    assert drafter.token_s < 0.0025
    step_s = 0.008
    for number in range(30):
        draft(number, 2)
    assert drafter.token_s == pytest.approx(0.008, rel=0.05)
    # It does not pay for anybody, so nothing measures it: it is believed less and less.
    for number in range(10):
        draft(number, 0)
    assert drafter.token_s < 0.0005
    drafter.close()
