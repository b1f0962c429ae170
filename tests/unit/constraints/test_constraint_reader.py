"""Whatever a constraint does to the process that reads it, this one goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from ferrum.constraints.constraint_reader import ConstraintReader
from ferrum.constraints.text_pipe import TextPipe
from ferrum.core.constraint import Constraint
from ferrum.core.errors import ConstraintTooComplex, InternalError

SOUND = Constraint.regex("[ab]+")
# Python's re tries all ways to cut the row of a's before it looks at the second alternative.
ENDLESS = Constraint.regex("(?:(?:a+)+b|a+c)")
ENDLESS_TEXT = "a" * 60 + "c"


@pytest.fixture
def reader() -> Iterator[ConstraintReader]:
    made = ConstraintReader(look_s=0.7)
    yield made
    made.close()


def waiting_process(reader: ConstraintReader) -> int:
    """The id of the one process that waits for the next question."""
    reader.read(SOUND, None, 1.0)
    (process,) = reader._idle
    return process.process_id


def is_gone(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def soon(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 5
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def test_one_process_answers_one_question_after_the_other(reader: ConstraintReader) -> None:
    process_id = waiting_process(reader)
    assert json.loads(reader.read(Constraint.json_object(), None, 1.0))["grammars"]
    assert reader.problem(SOUND, "abba") is None
    assert reader.problem(SOUND, "abc") == "the expression does not match it"
    assert waiting_process(reader) == process_id


def test_a_look_that_would_last_for_ever_ends_in_time_and_stops_no_other_thread(
    reader: ConstraintReader,
) -> None:
    slow_id = waiting_process(reader)
    priorities: list[int] = []
    ticks = [time.monotonic()]
    with ThreadPoolExecutor(1) as threads:
        look = threads.submit(reader.problem, ENDLESS, ENDLESS_TEXT)
        while not look.done():
            time.sleep(0.001)
            ticks.append(time.monotonic())
            if not is_gone(slow_id):
                priorities.append(os.getpriority(os.PRIO_PROCESS, slow_id))
        assert look.result() == "looking at it again takes more than 0.7 s"
    assert 0.6 < ticks[-1] - ticks[0] < 5
    # As long as it lasts when the interpreter's lock is held: the whole look.
    assert max(later - earlier for earlier, later in pairwise(ticks)) < 0.4
    # What takes long gives way to those who compute tokens, and is not used again.
    assert (priorities[0], priorities[-1]) == (os.getpriority(os.PRIO_PROCESS, 0), 19)
    assert soon(lambda: is_gone(slow_id))
    assert reader.problem(ENDLESS, "aac") is None


def test_a_constraint_that_takes_all_memory_ends_its_process_alone(reader: ConstraintReader) -> None:
    values = ",".join(['{"a":0}'] * 400_000)
    with pytest.raises(ConstraintTooComplex):
        reader.read(Constraint.json_schema(f'{{"enum":[{values}]}}'), None, 1.0)
    assert reader.read(SOUND, None, 1.0)


def test_a_constraint_that_takes_too_long_to_read_is_refused_and_the_next_one_read() -> None:
    reader = ConstraintReader(read_s=0.01)
    try:
        with pytest.raises(ConstraintTooComplex, match=r"more than 0\.01 s"):
            reader.read(Constraint.choice([f"choice {i}" for i in range(100_000)]), None, 1.0)
        reader._read_s = 20.0
        assert reader.read(SOUND, None, 1.0)
    finally:
        reader.close()


def test_a_grammar_that_is_too_large_behind_its_first_token_is_refused_before_any(
    reader: ConstraintReader,
) -> None:
    schema = {"type": "object", "properties": {f"p{i}": {} for i in range(1000)}}
    with pytest.raises(ConstraintTooComplex):
        reader.read(Constraint.json_schema(schema), None, 1.0)


def test_a_process_that_was_ended_while_it_waited_costs_no_constraint(reader: ConstraintReader) -> None:
    process_id = waiting_process(reader)
    os.kill(process_id, signal.SIGKILL)
    assert soon(lambda: is_gone(process_id))
    assert reader.read(SOUND, None, 1.0)


def test_an_interrupt_at_the_terminal_is_not_for_the_process(reader: ConstraintReader) -> None:
    process_id = waiting_process(reader)
    os.kill(process_id, signal.SIGINT)
    time.sleep(0.05)
    assert waiting_process(reader) == process_id


def test_closing_ends_processes_that_are_at_work() -> None:
    reader = ConstraintReader(look_s=30.0)
    waiting_process(reader)
    with ThreadPoolExecutor(1) as threads:
        look = threads.submit(reader.problem, ENDLESS, ENDLESS_TEXT)
        assert soon(lambda: bool(reader._busy))
        (process,) = reader._busy
        reader.close()
        assert "did not survive" in (look.result(5) or "")
    assert is_gone(process.process_id)


def test_processes_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    program = (
        "import os, signal\n"
        "from ferrum.constraints.constraint_reader import ConstraintReader\n"
        "from ferrum.core.constraint import Constraint\n"
        "reader = ConstraintReader()\n"
        "reader.read(Constraint.json_object(), None, 1.0)\n"
        "print(reader._idle[0].process_id, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    # Not through a pipe that the process would keep open, being told to say what goes wrong.
    with (tmp_path / "said").open("w+") as said:
        subprocess.run([sys.executable, "-c", program], stdout=said, check=False, timeout=30)
    process_id = int((tmp_path / "said").read_text())
    assert soon(lambda: is_gone(process_id))


@pytest.mark.parametrize("program", ["", "/nowhere/python"])
def test_where_no_process_can_be_started_constraints_are_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, reader: ConstraintReader, program: str
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    for ask in (lambda: reader.read(SOUND, None, 1.0), lambda: reader.problem(SOUND, "a")):
        with pytest.raises(InternalError, match="process of their own, which cannot be started") as caught:
            ask()
        assert "\n" not in str(caught.value)


def test_texts_of_any_length_and_kind_pass_unchanged() -> None:
    texts = ["", None, "ä€\U0001f600\x00\n", "x" * 3_000_000, None, "end"]
    (near_read, far_write), (far_read, near_write) = os.pipe(), os.pipe()
    near, far = TextPipe(near_read, near_write), TextPipe(far_read, far_write)
    try:
        for sent in (texts, [], ["once more"]):
            sender = threading.Thread(target=near.send, args=(sent, time.monotonic() + 5))
            sender.start()
            assert far.receive(time.monotonic() + 5) == sent
            sender.join()
        with pytest.raises(TimeoutError):
            near.receive(time.monotonic() + 0.01)
        with pytest.raises(TimeoutError):
            near.send(texts, time.monotonic() + 0.01)
    finally:
        for fd in (near_read, far_write, near_write):
            os.close(fd)
    os.close(far_read)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor only")
def test_a_process_works_where_its_asker_may_run(reader: ConstraintReader) -> None:
    """Who asks may have borrowed a processor."""
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {max(allowed)})
        process_id = waiting_process(reader)
        assert os.sched_getaffinity(process_id) == {max(allowed)}
        os.sched_setaffinity(0, allowed)
        assert waiting_process(reader) == process_id
        assert os.sched_getaffinity(process_id) == allowed
    finally:
        os.sched_setaffinity(0, allowed)
