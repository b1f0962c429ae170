"""What every BlockStore promises, checked on each one there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ferrum.core.block_store import BlockStore
from ferrum.core.kv_dtype import KvDtype
from ferrum.execution.reference_choice import choose_tokens
from ferrum.models.architectures import build_plan
from ferrum.runtimes.native import NativeRuntime
from ferrum.runtimes.numpy_interpreter import InterpreterMode, NumpyInterpreter
from ferrum.runtimes.protocol import LogitsDetail, Runtime, StepBatch
from ferrum.testing.scripted_executor import ScriptedBlocks
from ferrum.weights.checkpoint import open_checkpoint
from tiny_models import write_tiny_gemma3, write_tiny_llama

NUM_BLOCKS = 8
TOKENS = np.arange(3, 75, dtype=np.int32)  # two blocks and eight tokens


def _runtime(write: Callable[[Path], Path], folder: Path, make: Callable[..., Runtime]) -> Runtime:
    with open_checkpoint(write(folder / "tiny.gguf")) as checkpoint:
        return make(build_plan(checkpoint, None), checkpoint.tensors, NUM_BLOCKS)


def _exact(kv_dtype: KvDtype) -> Callable[..., Runtime]:
    mode = InterpreterMode.QUANTISED_EXACT
    return partial(NumpyInterpreter, mode=mode, choose=choose_tokens, kv_dtype=kv_dtype)


RUNTIMES: dict[str, Callable[[Path], Runtime]] = {
    "native": lambda folder: _runtime(write_tiny_llama, folder, NativeRuntime),
    "native, int8": lambda folder: _runtime(
        write_tiny_llama, folder, partial(NativeRuntime, kv_dtype=KvDtype.INT8)
    ),
    "native, sliding window": lambda folder: _runtime(write_tiny_gemma3, folder, NativeRuntime),
    "interpreter": lambda folder: _runtime(write_tiny_llama, folder, _exact(KvDtype.F16)),
    "interpreter, int8": lambda folder: _runtime(write_tiny_llama, folder, _exact(KvDtype.INT8)),
}


@pytest.fixture(params=RUNTIMES)
def runtime(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Runtime]:
    runtime = RUNTIMES[request.param](tmp_path)
    yield runtime
    runtime.close()


def _run(runtime: Runtime, start: int, end: int, table: list[int]) -> bytes:
    """The bits of the last position's logits."""
    batch = StepBatch(
        token_ids=TOKENS[start:end],
        positions=np.arange(start, end, dtype=np.int32),
        sequence_starts=np.array([0, end - start], dtype=np.int32),
        block_tables=np.array([table], dtype=np.int32),
        output_rows=np.array([end - start - 1], dtype=np.int32),
        sampling=None,
    )
    return runtime.run(batch, LogitsDetail.FULL).logits.tobytes()


def test_a_sequence_goes_on_from_copied_blocks_to_the_same_bits(runtime: Runtime) -> None:
    end = len(TOKENS)
    expected = _run(runtime, 0, end, [0, 1, 2])
    for source, target in [(0, 5), (1, 3), (2, 7)]:
        runtime.copy_block(source, target)
    assert _run(runtime, end - 1, end, [5, 3, 7]) == expected
    # Eight tokens of the third block, the rest of it as it may be.
    assert _run(runtime, 40, end, [0, 3, 6]) == expected


def test_a_sequence_goes_on_from_restored_blocks_to_the_same_bits(runtime: Runtime) -> None:
    end = len(TOKENS)
    expected = _run(runtime, 0, end, [0, 1, 2])
    saved = [runtime.read_block(block) for block in (0, 1, 2)]
    assert {len(content) for content in saved} == {runtime.block_bytes}
    for block in range(NUM_BLOCKS):
        runtime.write_block(block, bytes(runtime.block_bytes))
    for block, content in zip((6, 4, 1), saved, strict=True):
        runtime.write_block(block, content)
    assert _run(runtime, end - 1, end, [6, 4, 1]) == expected


@pytest.fixture(params=["scripted", *RUNTIMES])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlockStore:
    if request.param == "scripted":
        return ScriptedBlocks({}, block_tokens=4)
    return RUNTIMES[request.param](tmp_path)


def test_what_is_written_is_read_and_copied_and_nothing_else_changes(store: BlockStore) -> None:
    rng = np.random.default_rng(0)
    contents = [rng.integers(0, 60, store.block_bytes, np.uint8).tobytes() for _ in range(3)]
    for block, content in enumerate(contents):
        store.write_block(block, content)
    store.copy_block(2, 1)
    store.copy_block(0, 0)
    assert [store.read_block(block) for block in range(3)] == [contents[0], contents[2], contents[2]]


def test_layouts_have_names(store: BlockStore) -> None:
    assert store.layout_id
