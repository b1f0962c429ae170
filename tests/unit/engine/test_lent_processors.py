"""Steps do without a processor while somebody works on it, if they are short, and teach nothing then."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from engine_factory import ask, build_workshop, eventually, running

from ferrum.constraints.constraint_compiler import CompiledConstraint, ConstraintCompiler
from ferrum.constraints.constraint_reader import ConstraintReader
from ferrum.core.constraint import Constraint
from ferrum.core.errors import ConstraintTooComplex, FerrumError
from ferrum.core.processor_loans import LONGEST_STEP_S, ProcessorLoans
from ferrum.core.step import SequencePart, StepPlan, StepResult
from ferrum.scheduling.scheduler import ContinuousBatchScheduler
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.testing.scripted_executor import ScriptedExecutor


class NotingExecutor(ScriptedExecutor):
    """Keeps how many processors each step did without; ``before`` is called in each."""

    def __init__(self, before: Callable[[int], None] = lambda _: None) -> None:
        super().__init__()
        self.lent: list[int] = []
        self._before = before

    def execute(self, plan: StepPlan) -> StepResult:
        self._before(len(self.lent))
        self.lent.append(plan.num_lent_processors)
        return super().execute(plan)


class Work:
    """Other work of the process: it borrows before one step and ends before another."""

    def __init__(self, loans: ProcessorLoans, begins_in: int, ends_in: int) -> None:
        self._loans = loans
        self._begins_in, self._ends_in = begins_in, ends_in
        self._may_end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def in_step(self, number: int) -> None:
        if number == self._begins_in:
            self._thread.start()
            while not self._loans.num_wanted:
                pass
        if number == self._ends_in:
            self._may_end.set()
            self._thread.join()

    def _run(self) -> None:
        with self._loans.borrowed():
            self._may_end.wait(10)


async def test_steps_do_without_a_processor_while_it_is_borrowed() -> None:
    loans = ProcessorLoans(1)
    work = Work(loans, begins_in=2, ends_in=5)
    executor = NotingExecutor(work.in_step)
    async with running(build_workshop(executor, loans=loans)) as workshop:
        await workshop.engine.infer(ask(max_tokens=10))
    assert executor.lent[:3] == [0, 0, 0], "the running step goes on as it began"
    assert executor.lent[3:6] == [1, 1, 1]
    assert set(executor.lent[6:]) == {0}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="nobody can be sent away")
async def test_what_a_request_starts_may_run_where_the_loop_may_though_it_was_sent_away() -> None:
    allowed = os.sched_getaffinity(0)
    loans = ProcessorLoans(1, lambda: sorted(allowed)[:2])
    loans.add_messenger(threading.get_native_id())
    async with running(build_workshop(loans=loans)) as workshop:
        with ThreadPoolExecutor(1) as threads, ExitStack() as loan:
            threads.submit(loan.enter_context, loans.borrowed()).result(5)
            assert os.sched_getaffinity(0) == {min(allowed)}
            answer = asyncio.create_task(workshop.engine.infer(ask()))
            await asyncio.sleep(0)  # It has been taken, and nothing of it delivered.
            affinity = os.sched_getaffinity(0)
            threads.submit(loan.close).result(5)
        await answer
    assert affinity == allowed


async def test_long_steps_keep_their_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ContinuousBatchScheduler, "predict", lambda *_: LONGEST_STEP_S * 1.01)
    loans = ProcessorLoans(1)
    work = Work(loans, begins_in=1, ends_in=5)
    executor = NotingExecutor(work.in_step)
    async with running(build_workshop(executor, loans=loans)) as workshop:
        await workshop.engine.infer(ask(max_tokens=10))
    assert set(executor.lent) == {0}


async def test_steps_that_lend_teach_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are slow: prompts beside them would get less than their share for long after."""
    taught: list[tuple[SequencePart, ...]] = []
    monkeypatch.setattr(ContinuousBatchScheduler, "learn", lambda _, parts, __: taught.append(parts))
    loans = ProcessorLoans(1)
    executor = NotingExecutor(Work(loans, begins_in=2, ends_in=5).in_step)
    async with running(build_workshop(executor, loans=loans)) as workshop:
        await workshop.engine.infer(ask(max_tokens=10))
    assert len(taught) == len(executor.lent) - sum(executor.lent)
    assert sum(executor.lent)


def test_a_compilation_borrows_and_gives_back(monkeypatch: pytest.MonkeyPatch) -> None:
    loans = ProcessorLoans(1)
    compiler = ConstraintCompiler(ByteTokenizer(), ByteTokenizer().vocab_size, loans=loans)
    wanted = []
    read = compiler._reader.read
    monkeypatch.setattr(compiler._reader, "read", lambda *a: (wanted.append(loans.num_wanted), read(*a))[1])
    try:
        compiler.compile(Constraint.regex("a+"))
        with pytest.raises(FerrumError):
            compiler.compile(Constraint.regex("("))
    finally:
        compiler.close()
    assert wanted == [1, 1]
    assert loans.num_wanted == 0


LONG_TO_READ = Constraint.json_schema({"properties": {f"p{i}": {} for i in range(1000)}})


def kill_reader(reader: ConstraintReader, _: asyncio.Task[CompiledConstraint]) -> None:
    for process in tuple(reader._busy):
        process.kill()


def wait_for_its_time(_: ConstraintReader, __: asyncio.Task[CompiledConstraint]) -> None:
    pass


def leave(_: ConstraintReader, compiling: asyncio.Task[CompiledConstraint]) -> None:
    compiling.cancel()


@pytest.mark.parametrize(
    ("read_s", "act"), [(20.0, kill_reader), (0.01, wait_for_its_time), (20.0, leave)], ids=range(3)
)
async def test_a_loan_ends_when_its_reader_dies_is_too_slow_or_has_no_caller(
    read_s: float, act: Callable[[ConstraintReader, asyncio.Task[CompiledConstraint]], None]
) -> None:
    loans, reader = ProcessorLoans(1), ConstraintReader(read_s)
    compiler = ConstraintCompiler(ByteTokenizer(), ByteTokenizer().vocab_size, reader=reader, loans=loans)
    compiling = asyncio.create_task(compiler.compile_beside(LONG_TO_READ))
    try:
        await eventually(lambda: bool(loans.num_wanted and reader._busy), 10.0)
        act(reader, compiling)
        await asyncio.wait([compiling])
        assert compiling.cancelled() or isinstance(compiling.exception(), ConstraintTooComplex)
        await eventually(lambda: loans.num_wanted == 0, 3.0)  # Long before it would run out.
    finally:
        compiler.close()
