"""A processor is lent while work lasts, the work waits for no more than a step, and all is put back."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from ferrum.core.processor_loans import LONGEST_LOAN_S, ProcessorLoans
from ferrum.testing.manual_clock import ManualClock

ALLOWED = os.sched_getaffinity(0)
needs_two_processors = pytest.mark.skipif(len(ALLOWED) < 2, reason="nothing can be kept apart")


def places() -> list[int]:
    """Of two compute threads."""
    return sorted(ALLOWED)[:2]


@pytest.fixture
def own_affinity() -> Iterator[None]:
    """A test that fails must not move those after it."""
    yield
    os.sched_setaffinity(0, ALLOWED)


class Borrower(threading.Thread):
    """Borrows until it is told to end."""

    def __init__(self, loans: ProcessorLoans) -> None:
        super().__init__()
        self._loans = loans
        self.works = threading.Event()
        self.may_end = threading.Event()
        self.start()

    def run(self) -> None:
        with self._loans.borrowed():
            self.works.set()
            self.may_end.wait(10)

    def end(self) -> None:
        self.may_end.set()
        self.join(10)


def wait_until_wanted(loans: ProcessorLoans) -> None:
    deadline = time.monotonic() + 5
    while not loans.num_wanted:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_processor_is_wanted_while_anybody_works() -> None:
    loans = ProcessorLoans(1)
    assert loans.num_wanted == 0
    first, second = Borrower(loans), Borrower(loans)
    first.works.wait(5)
    second.works.wait(5)
    first.end()
    assert loans.num_wanted == 1
    second.end()
    assert loans.num_wanted == 0


def test_work_that_fails_ends_its_loan() -> None:
    loans = ProcessorLoans(1)
    with pytest.raises(ZeroDivisionError), loans.borrowed():
        raise ZeroDivisionError
    assert loans.num_wanted == 0


def test_work_that_cannot_begin_ends_its_loan() -> None:
    def interrupted() -> list[int]:
        raise KeyboardInterrupt

    loans = ProcessorLoans(1, interrupted)
    with pytest.raises(KeyboardInterrupt), loans.borrowed():
        pass
    assert loans.num_wanted == 0


def test_work_begins_when_the_step_ends_that_has_all_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrum.core.processor_loans._PATIENCE_S", 10.0)
    loans = ProcessorLoans(1)
    loans.begin_step(0)
    borrower = Borrower(loans)
    wait_until_wanted(loans)
    assert not borrower.works.wait(0.05)
    loans.end_step()
    assert borrower.works.wait(5)
    borrower.end()


def test_work_begins_at_once_beside_a_step_that_lends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrum.core.processor_loans._PATIENCE_S", 10.0)
    loans = ProcessorLoans(1)
    loans.begin_step(1)
    borrower = Borrower(loans)
    assert borrower.works.wait(5)
    borrower.end()


def test_work_does_not_wait_long_for_a_long_step() -> None:
    loans = ProcessorLoans(1)
    loans.begin_step(0)
    borrower = Borrower(loans)
    assert borrower.works.wait(5)
    borrower.end()


def test_work_that_never_ends_loses_its_loan() -> None:
    clock = ManualClock()
    loans = ProcessorLoans(1, clock=clock)
    with loans.borrowed():
        clock.advance(LONGEST_LOAN_S + 0.1)
        assert loans.num_wanted == 0
        with loans.borrowed():
            assert loans.num_wanted == 1


@needs_two_processors
def test_work_and_steps_are_kept_on_processors_of_their_own(own_affinity: None) -> None:
    loans = ProcessorLoans(1, places)
    messenger = Borrower(ProcessorLoans(1))  # Any thread that lives.
    messenger_id = messenger.native_id
    assert messenger_id is not None
    loans.add_messenger(messenger_id)
    step_processors = {places()[0]}
    with loans.borrowed():
        assert os.sched_getaffinity(0) == ALLOWED - step_processors
        assert os.sched_getaffinity(messenger_id) == step_processors
    assert os.sched_getaffinity(0) == ALLOWED
    assert os.sched_getaffinity(messenger_id) == ALLOWED
    messenger.end()
    with loans.borrowed():  # One that is gone is no reason to fail.
        assert os.sched_getaffinity(0) == ALLOWED - step_processors


@needs_two_processors
def test_a_messenger_may_run_everywhere_again_once_it_came_and_after_the_last_loan(
    own_affinity: None,
) -> None:
    """What it starts would stay where it was sent."""
    loans = ProcessorLoans(1, places)
    loans.add_messenger(threading.get_native_id())
    first = Borrower(loans)
    first.works.wait(5)
    assert os.sched_getaffinity(0) == {places()[0]}
    loans.messenger_came()
    assert os.sched_getaffinity(0) == ALLOWED
    second = Borrower(loans)
    second.works.wait(5)
    assert os.sched_getaffinity(0) == {places()[0]}
    first.end()
    second.end()
    assert os.sched_getaffinity(0) == ALLOWED


@pytest.mark.parametrize("known", [[], [-1, -1], [*sorted(ALLOWED), 0]])
def test_nobody_is_moved_where_places_are_unknown_or_all_taken(known: list[int], own_affinity: None) -> None:
    loans = ProcessorLoans(1, lambda: known)
    with loans.borrowed():
        assert os.sched_getaffinity(0) == ALLOWED


@needs_two_processors
def test_nothing_is_lent_and_nobody_moved_where_others_have_a_processor(own_affinity: None) -> None:
    loans = ProcessorLoans(0, places)
    loans.begin_step(0)
    with loans.borrowed():
        assert loans.num_wanted == 0
        assert os.sched_getaffinity(0) == ALLOWED
