"""Members of a compute team keep off each other's processors, and nobody is bound to one."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
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
    team.run_step()
    (other,) = team.others
    assert os.sched_getaffinity(other) < ALLOWED
    assert len(os.sched_getaffinity(other)) == len(ALLOWED) - 1
    assert os.sched_getaffinity(0) == ALLOWED, "the caller's thread is the caller's"


@needs_two_processors
def test_members_that_came_to_share_a_processor_are_separated_within_the_step(
    tmp_path: Path, own_affinity: None
) -> None:
    team = _start_team(tmp_path, 2)
    (other,) = team.others
    team.run_step()
    (taken,) = ALLOWED - os.sched_getaffinity(other)
    # As if the system had moved both there; what the team knows of the processors it may use is older.
    os.sched_setaffinity(threading.get_native_id(), {taken})
    os.sched_setaffinity(other, {taken})
    for _ in range(50):
        team.run_step()
        if taken not in os.sched_getaffinity(other):
            return
    pytest.fail("they still share a processor")


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
