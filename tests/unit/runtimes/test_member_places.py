"""Members of a compute team keep off each other's processors, and nobody is bound to one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from step_batches import logits_of, open_tiny

from ferrum.runtimes.native import NativeRuntime, StepLimits
from tiny_models import write_tiny_llama

ALLOWED = os.sched_getaffinity(0)
needs_two_processors = pytest.mark.skipif(len(ALLOWED) < 2, reason="members have to share one processor")


@dataclass
class Team:
    """A runtime with the system's ids of members 1, 2, ...; member 0 is whoever calls."""

    runtime: NativeRuntime
    others: list[int]

    def run_step(self) -> None:
        logits_of(self.runtime, [7, 8, 9], 3, [0])

    def steps_until(self, is_so: Callable[[], bool], seconds: float = 3.0) -> bool:
        """Whether it became so after one of the steps of so many seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.run_step()
            if is_so():
                return True
        return False


def _start_team(folder: Path, num_threads: int) -> Team:
    checkpoint, plan = open_tiny(write_tiny_llama(folder / "tiny.gguf"))
    before = set(os.listdir("/proc/self/task"))
    runtime = NativeRuntime(plan, checkpoint.tensors, 4, num_threads, StepLimits(16, 16))
    return Team(runtime, sorted(int(each) for each in set(os.listdir("/proc/self/task")) - before))


@pytest.fixture
def own_affinity() -> Iterator[None]:
    """The test may bind its thread."""
    yield
    os.sched_setaffinity(threading.get_native_id(), ALLOWED)


@needs_two_processors
def test_the_others_may_go_anywhere_but_where_the_caller_runs(tmp_path: Path) -> None:
    team = _start_team(tmp_path, 2)
    (other,) = team.others
    # Not at once where something else takes a processor meanwhile.
    assert team.steps_until(lambda: len(os.sched_getaffinity(other)) == len(ALLOWED) - 1)
    assert os.sched_getaffinity(other) < ALLOWED
    assert os.sched_getaffinity(0) == ALLOWED, "the caller's thread is the caller's"


@needs_two_processors
def test_members_that_came_to_share_a_processor_are_separated_within_the_step(
    tmp_path: Path, own_affinity: None
) -> None:
    team = _start_team(tmp_path, 2)
    (other,) = team.others
    for _ in range(10):  # Again where something else has just moved one of them.
        os.sched_setaffinity(threading.get_native_id(), ALLOWED)
        assert team.steps_until(lambda: len(os.sched_getaffinity(other)) == len(ALLOWED) - 1)
        for _ in range(20):
            team.run_step()
        (taken,) = ALLOWED - os.sched_getaffinity(other) or {min(ALLOWED)}
        # As if the system had moved both there; what the team knows of the processors it may use is older.
        os.sched_setaffinity(threading.get_native_id(), {taken})
        os.sched_setaffinity(other, {taken})
        if team.steps_until(lambda place=taken: place not in os.sched_getaffinity(other), seconds=0.3):
            return
    pytest.fail("they still share a processor")


@pytest.fixture
def busy_process() -> Iterator[int]:
    """The id of a process that computes without end."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        yield process.pid
        process.kill()


@needs_two_processors
def test_a_member_whose_processor_another_process_takes_may_come_to_that_of_who_waits_for_it(
    tmp_path: Path, own_affinity: None, busy_process: int
) -> None:
    two = set(sorted(ALLOWED)[:2])
    os.sched_setaffinity(threading.get_native_id(), two)
    team = _start_team(tmp_path, 2)
    (other,) = team.others
    assert team.steps_until(lambda: len(os.sched_getaffinity(other)) == 1)
    os.sched_setaffinity(busy_process, os.sched_getaffinity(other))
    assert team.steps_until(lambda: os.sched_getaffinity(other) == two), "nobody let it go anywhere else"
    assert team.steps_until(lambda: len(os.sched_getaffinity(other)) == 1), "they share for ever"
    assert os.sched_getaffinity(0) == two, "the caller's thread is the caller's, moved or not"


def test_a_caller_bound_to_one_processor_leaves_the_others_alone(tmp_path: Path, own_affinity: None) -> None:
    """Only the caller says how many processors there are, and one is too few to keep members apart."""
    team = _start_team(tmp_path, 2)
    os.sched_setaffinity(threading.get_native_id(), {min(ALLOWED)})
    team.run_step()
    assert [os.sched_getaffinity(other) for other in team.others] == [ALLOWED]


def test_more_members_than_processors_share_them_all(tmp_path: Path) -> None:
    team = _start_team(tmp_path, len(ALLOWED) + 1)
    team.run_step()
    assert all(os.sched_getaffinity(other) == ALLOWED for other in team.others)
