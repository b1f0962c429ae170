"""Many more threads than processors: the same bits, no hang, and nothing left behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from step_batches import batch_of, logits_of, open_tiny, some_tokens

from ferrum.core.arrays import FloatArray
from ferrum.plan.model_plan import ModelPlan
from ferrum.runtimes.native import NativeRuntime, StepLimits
from ferrum.runtimes.protocol import LogitsDetail
from ferrum.weights.checkpoint import Checkpoint
from ferrum.weights.tensor_types import TensorType
from tiny_models import write_tiny_gemma3, write_tiny_llama

NUM_BLOCKS = 16
LIMITS = StepLimits(max_tokens=256, max_outputs=256)
TABLE = [3, 1, 4, 15, 9, 2, 6]
WRITERS = {"llama": write_tiny_llama, "gemma": write_tiny_gemma3}


@pytest.fixture(scope="module", params=list(WRITERS))
def tiny(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Checkpoint, ModelPlan]:
    path = tmp_path_factory.mktemp(request.param) / "tiny.gguf"
    return open_tiny(WRITERS[request.param](path, TensorType.Q4_1))


def runtime_of(tiny: tuple[Checkpoint, ModelPlan], num_threads: int) -> NativeRuntime:
    checkpoint, plan = tiny
    return NativeRuntime(plan, checkpoint.tensors, NUM_BLOCKS, num_threads, LIMITS)


def prefill_then_decode(runtime: NativeRuntime, seed: int = 0) -> FloatArray:
    """One long step, then steps of one row: cheap chains replicated, attention split by pieces."""
    tokens = some_tokens(208, seed)  # two pieces
    prefill = logits_of(runtime, tokens[:205], 205, TABLE)
    return np.concatenate([prefill, logits_of(runtime, tokens, 1, TABLE, start=205)])


def wait_until(holds: Callable[[], bool], within_s: float = 2.0) -> None:
    """A joined thread may show in /proc for a moment longer."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("num_threads", [16, 32, 64])
def test_many_threads_give_the_bits_of_one(tiny: tuple[Checkpoint, ModelPlan], num_threads: int) -> None:
    expected = prefill_then_decode(runtime_of(tiny, 1))
    np.testing.assert_array_equal(prefill_then_decode(runtime_of(tiny, num_threads)), expected)


@pytest.mark.parametrize("num_threads", [2, 3, 16])
def test_steps_that_leave_threads_out_give_the_bits_of_one(
    tiny: tuple[Checkpoint, ModelPlan], num_threads: int
) -> None:
    """Threads come and go from step to step, also such as were away for several."""
    tokens = some_tokens(80)
    expected = logits_of(runtime_of(tiny, 1), tokens, 2, TABLE)
    runtime = runtime_of(tiny, num_threads)
    lent = [0, 1, 1, 0, num_threads - 1, 1, num_threads, 0]
    found = []
    for number, start in enumerate(range(0, len(tokens), 2)):
        batch = batch_of([(tokens[start : start + 2], start, TABLE)])
        batch = replace(batch, num_lent_processors=lent[number % len(lent)])
        found.append(runtime.run(batch, LogitsDetail.FULL).logits)
    np.testing.assert_array_equal(np.concatenate(found), expected)


def test_threads_that_are_left_out_sleep(tiny: tuple[Checkpoint, ModelPlan]) -> None:
    """And compute again as soon as they are wanted."""
    before = set(os.listdir("/proc/self/task"))
    runtime = runtime_of(tiny, 3)
    others = sorted(set(os.listdir("/proc/self/task")) - before, key=int)

    def num_turns() -> list[int]:
        """How often each had a processor."""
        texts = [Path(f"/proc/self/task/{each}/schedstat").read_text() for each in others]
        return [int(text.split()[2]) for text in texts]

    def run(num_lent: int) -> None:
        batch = replace(batch_of([([7, 8, 9], 0, [0])]), num_lent_processors=num_lent)
        runtime.run(batch, LogitsDetail.FULL)

    run(0)
    run(2)
    time.sleep(0.05)  # Until they are asleep.
    asleep = num_turns()
    for _ in range(50):
        run(2)
    assert num_turns() == asleep
    run(0)
    assert all(now > then for now, then in zip(num_turns(), asleep, strict=True))


def test_a_runtime_is_closed_while_threads_are_left_out(tiny: tuple[Checkpoint, ModelPlan]) -> None:
    before = len(os.listdir("/proc/self/task"))
    runtime = runtime_of(tiny, 4)
    runtime.run(replace(batch_of([([7], 0, [0])]), num_lent_processors=2), LogitsDetail.FULL)
    runtime.close()
    del runtime
    wait_until(lambda: len(os.listdir("/proc/self/task")) == before)


def test_runtimes_of_several_threads_run_side_by_side(tiny: tuple[Checkpoint, ModelPlan]) -> None:
    seeds = range(3)
    alone = [prefill_then_decode(runtime_of(tiny, 1), seed) for seed in seeds]
    runtimes = [runtime_of(tiny, num_threads) for num_threads in (2, 3, 5)]
    with ThreadPoolExecutor(len(runtimes)) as pool:
        together = list(pool.map(prefill_then_decode, runtimes, seeds))
    for result, expected in zip(together, alone, strict=True):
        np.testing.assert_array_equal(result, expected)


def test_a_runtime_that_goes_takes_its_threads_along(tiny: tuple[Checkpoint, ModelPlan]) -> None:
    """At once: what waits for the garbage collector is there twice when a model is reloaded."""

    def num_threads() -> int:
        return len(os.listdir("/proc/self/task"))

    before = num_threads()
    gc.disable()
    try:
        for _ in range(10):
            runtime = runtime_of(tiny, 16)
            assert num_threads() == before + 15
            logits_of(runtime, [7], 1, [0])
            runtime.close()
            del runtime
            wait_until(lambda: num_threads() == before)
    finally:
        gc.enable()


def test_more_threads_than_the_system_gives_are_one_clear_error(tmp_path: Path) -> None:
    """In a process of its own: it lowers its own limit on address space, which stacks count against."""
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    done = subprocess.run([sys.executable, "-c", LIMITED, path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "num_threads" in done.stdout
    assert "64 threads" in done.stdout
    assert "left behind: 0" in done.stdout


LIMITED = """
import os, resource, sys, time
from pathlib import Path
os.environ["OPENBLAS_NUM_THREADS"] = "1"
from ferrum.core.errors import InvalidConfig
from ferrum.models.architectures import build_plan
from ferrum.runtimes.native import NativeRuntime, StepLimits
from ferrum.runtimes.protocol import LogitsDetail
from ferrum.weights.checkpoint import open_checkpoint

checkpoint = open_checkpoint(Path(sys.argv[1]))
plan = build_plan(checkpoint, 64)
num_threads = len(os.listdir("/proc/self/task"))
used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20),) * 2)
try:
    NativeRuntime(plan, checkpoint.tensors, 4, 64, StepLimits(16, 16))
except InvalidConfig as error:
    print(error)
time.sleep(0.1)  # a joined thread may show for a moment longer
print("left behind:", len(os.listdir("/proc/self/task")) - num_threads)
"""
