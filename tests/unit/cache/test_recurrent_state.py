from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ferrum.cache.recurrent_state import RECURRENT_STATE_SLOT, RecurrentStateManager, RecurrentStateStats
from ferrum.core.errors import AlreadyExists, InternalError, ResourceExhausted
from ferrum.core.ledger import LifecycleLedger

Make = Callable[..., RecurrentStateManager]


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes managers, and gives everything back at the end, as an engine would."""
    made: list[RecurrentStateManager] = []

    def make_one(**limits: int) -> RecurrentStateManager:
        made.append(RecurrentStateManager(LifecycleLedger(), **limits))
        return made[-1]

    yield make_one
    for states in made:
        for owner in tuple(states.ledger.outstanding()):
            assert states.release(owner)
        assert states.ledger.outstanding() == {}
        assert states.stats.used_bytes == 0


def test_the_third_state_over_a_cap_of_two_is_refused_and_counted(make: Make) -> None:
    states = make(max_slots=2)
    states.allocate("a", 100)
    states.allocate("b", 100)
    assert not states.has_room(100)
    with pytest.raises(ResourceExhausted, match="recurrent_state_max_slots") as caught:
        states.allocate("c", 100)
    assert (caught.value.needed, caught.value.available) == (1, 0)
    assert states.stats == RecurrentStateStats(total_slots=2, used_slots=2, used_bytes=200, num_failures=1)
    assert "c" not in states.ledger.outstanding()


def test_bytes_run_out_as_slots_do(make: Make) -> None:
    states = make(max_bytes=250)
    states.allocate("a", 200)
    with pytest.raises(ResourceExhausted) as caught:
        states.allocate("b", 60)
    assert (caught.value.needed, caught.value.available) == (60, 50)
    states.allocate("c", 50)
    assert states.stats == RecurrentStateStats(None, 2, 250, 1)


def test_without_limits_there_is_always_room(make: Make) -> None:
    states = make()
    slots = [states.allocate(str(number), 1).slot for number in range(100)]
    assert slots == list(range(100))
    assert states.has_room(2**60)


def test_an_owner_has_one_state(make: Make) -> None:
    states = make(max_slots=2)
    handle = states.allocate("a", 1)
    with pytest.raises(AlreadyExists) as caught:
        states.allocate("a", 1)
    assert (caught.value.resource, caught.value.owner) == ("recurrent state", "a")
    assert states.handle("a") is handle
    assert handle.is_valid
    assert states.stats.used_slots == 1


def test_a_released_slot_ends_its_handle_and_is_the_next_one_given(make: Make) -> None:
    states = make(max_slots=3)
    handles = [states.allocate(owner, 10) for owner in "abc"]
    assert states.release("b")
    assert [handle.is_valid for handle in handles] == [True, False, True]
    assert states.allocate("d", 10).slot == handles[1].slot
    assert not handles[1].is_valid


def test_releasing_may_be_repeated(make: Make) -> None:
    states = make(max_slots=1)
    states.allocate("a", 10)
    assert states.release("a")
    assert not states.release("a")
    assert not states.release("nobody")
    assert states.stats == RecurrentStateStats(1, 0, 0, 0)
    assert states.ledger.num_underflows == 0


def test_a_slot_is_a_lease_in_the_ledger(make: Make) -> None:
    states = make()
    ledger = states.ledger
    states.allocate("a", 10)
    assert ledger.outstanding() == {"a": {RECURRENT_STATE_SLOT: 1}}
    states.release("a")
    (counts,) = ledger.close("a").resources
    assert (counts.reserved, counts.committed, counts.released) == (1, 1, 1)


def test_nobody_computes_without_a_state(make: Make) -> None:
    with pytest.raises(InternalError, match="a is to be computed and has no recurrent state"):
        make().handle("a")
