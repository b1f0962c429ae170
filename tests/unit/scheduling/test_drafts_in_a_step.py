"""What a step computes of the tokens that were drafted for it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from scheduler_driver import SchedulerDriver, spec

from ferrum.core.config import SchedulerConfig
from ferrum.core.errors import FerrumError, MalformedAnswer
from ferrum.core.events import RequestPreempted
from ferrum.core.sampling_params import SamplingParams
from ferrum.core.step import SampledToken
from ferrum.core.token_gate import FirstTokenGate, StillGate, TokenGate, full_mask, without_tokens
from ferrum.core.token_rules import TokenMask
from ferrum.scheduling.sequence import Sequence, SequenceSpec

WITHOUT_7 = StillGate(without_tokens(full_mask(96), [7]))


@dataclass(frozen=True)
class DeadEnd:
    """Allows every token, and 9 leads nowhere."""

    mask: TokenMask | None = None
    error: FerrumError | None = None

    def after(self, token_id: int) -> TokenGate:
        return DeadEnd(error=MalformedAnswer("9")) if token_id == 9 else self


@dataclass(frozen=True)
class Narrow:
    """Allows one token after the other, where it names one, and then every token."""

    token_ids: tuple[int | None, ...]
    error: FerrumError | None = None

    @property
    def mask(self) -> TokenMask | None:
        if not self.token_ids or self.token_ids[0] is None:
            return None
        return without_tokens(full_mask(96), [each for each in range(96) if each != self.token_ids[0]])

    def after(self, token_id: int) -> TokenGate:
        return Narrow(self.token_ids[1:])


def _decoding(gate: TokenGate | None) -> Sequence:
    request = SequenceSpec("a", (1, 2), 8, True, SamplingParams(), seed=3, gate=gate)
    sequence = Sequence(request, 0, 0.0)
    sequence.take(sequence.part(2, (0,)), [SampledToken("a", 5)])
    return sequence


def test_tokens_that_could_only_come_are_part_of_a_decode_also_with_drafts_behind_them() -> None:
    gate = Narrow((None, 6, 7))
    request = SequenceSpec("a", (1, 2), 8, True, SamplingParams(), seed=3, gate=gate, most_forced=15)
    sequence = Sequence(request, 0, 0.0)
    sequence.take(sequence.part(2, (0,)), [SampledToken("a", 5)])
    for drafts in ((), (8, 9)):
        part = sequence.decode_part(drafts, (0,))
        assert part.token_ids == (5, 6, 7, *drafts)
        assert (part.num_forced, part.num_drafts, part.is_decode) == (2, len(drafts), True)
        assert len(part.choices) == 1 + len(drafts)


def test_every_drafted_token_has_a_choice_after_it_at_its_own_position() -> None:
    part = _decoding(None).decode_part((6, 7, 8), (0,))
    assert part.token_ids == (5, 6, 7, 8)
    assert (part.start_position, part.num_drafts, part.is_decode) == (2, 3, True)
    assert [choice.position for choice in part.choices] == [3, 4, 5, 6]
    assert {choice.seed for choice in part.choices} == {3}


@pytest.mark.parametrize(
    ("gate", "drafts", "kept"),
    [
        (WITHOUT_7, (6, 7, 8), (6,)),
        (WITHOUT_7, (7, 8), ()),
        (WITHOUT_7, (6, 8), (6, 8)),
        (FirstTokenGate(None, WITHOUT_7), (8, 7), (8,)),
        (DeadEnd(), (8, 9, 8), (8,)),
        (None, (8, 9, 8), (8, 9, 8)),
    ],
)
def test_a_draft_is_cut_where_its_token_may_not_come(
    gate: TokenGate | None, drafts: tuple[int, ...], kept: tuple[int, ...]
) -> None:
    sequence = _decoding(gate)
    part = sequence.decode_part(drafts, (0,))
    assert part.token_ids == (5, *kept)
    assert len(part.choices) == 1 + len(kept)
    masks = [choice.mask for choice in part.choices]
    assert masks == [sequence.choice_after(kept[:count]).mask for count in range(len(masks))]


def test_the_mask_after_a_draft_is_that_of_its_place() -> None:
    part = _decoding(FirstTokenGate(None, FirstTokenGate(full_mask(96), WITHOUT_7))).decode_part((6,), (0,))
    assert part.choices[0].mask is not None
    assert part.choices[1].mask is WITHOUT_7.mask


def test_wrong_drafts_are_computed_again_in_their_place() -> None:
    sequence = _decoding(None)
    part = sequence.decode_part((6, 7, 8), (0,))
    sequence.take(part, [SampledToken("a", 6), SampledToken("a", 9)])
    assert sequence.token_ids == [1, 2, 5, 6, 9]
    assert sequence.num_computed_tokens == 4
    assert sequence.part(1, (0,)).token_ids == (9,)


def test_drafts_take_what_the_step_has_room_for_beside_everybodys_own_token() -> None:
    config = SchedulerConfig(max_running_requests=3, max_num_batched_tokens=6)
    driver = SchedulerDriver(config, num_blocks=32)
    for name in "abc":
        driver.submit(spec(name, 2, max_tokens=9))
    for _ in range(3):
        driver.step()
    plan = driver.scheduler.schedule(dict.fromkeys("abc", (1,) * 5))
    assert plan is not None
    assert [len(part.token_ids) for part in plan.parts] == [4, 1, 1]
    assert plan.num_tokens == 6
    for name in "abc":
        driver.cancel(name)
    driver.assert_nothing_is_held()


def test_nobody_gives_way_for_drafts() -> None:
    """Three blocks of eight for two requests: the second has drafts in the block it holds, and no more."""
    driver = SchedulerDriver(SchedulerConfig(expected_output_tokens=1), num_blocks=3, block_tokens=8)
    for name in "ab":
        driver.submit(spec(name, 2, max_tokens=9, is_budget_explicit=False))
    driver.step()
    plan = driver.scheduler.schedule(dict.fromkeys("ab", (1,) * 9))
    assert plan is not None
    assert [(len(part.token_ids), len(part.block_table)) for part in plan.parts] == [(8, 2), (6, 1)]
    assert not [event for event in driver.events if isinstance(event, RequestPreempted)]
    for name in "ab":
        driver.cancel(name)
    driver.assert_nothing_is_held()
