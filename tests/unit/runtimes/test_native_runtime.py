"""The native runtime against the exact interpreter, and against itself cut differently: equal bits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_batches import batch_of, logits_of, open_tiny, some_tokens

from ferrum import _native
from ferrum.core.arrays import FloatArray
from ferrum.core.errors import InvalidConfig, UnsupportedModel
from ferrum.core.kv_dtype import KvDtype
from ferrum.core.step import SamplingInstruction
from ferrum.execution.reference_choice import choose_tokens
from ferrum.execution.sampling_columns import build_sampling_batch
from ferrum.models.architectures import build_plan
from ferrum.plan.model_plan import ModelPlan
from ferrum.runtimes.native import NativeRuntime, StepLimits
from ferrum.runtimes.numpy_interpreter import InterpreterMode, NumpyInterpreter
from ferrum.runtimes.protocol import LogitsDetail, LogprobBatch, SamplingBatch, StepAborted, StepBatch
from ferrum.weights.checkpoint import Checkpoint, open_checkpoint
from ferrum.weights.tensor_types import TensorType
from tiny_models import (
    VOCABULARY,
    gemma3_metadata,
    llama_metadata,
    random_tensor,
    write_tiny_gemma3,
    write_tiny_llama,
)

NUM_BLOCKS = 40
WriteTiny = Callable[[Path, TensorType], Path]
LIMITS = StepLimits(max_tokens=512, max_outputs=512)


@pytest.fixture(scope="module")
def tiny_gemma(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkpoint, ModelPlan]:
    path = tmp_path_factory.mktemp("gemma") / "tiny.gguf"
    return open_tiny(write_tiny_gemma3(path, TensorType.Q8_0))


def wide_llama() -> dict[str, object]:
    """Wide enough for blocks of 256."""
    return llama_metadata(embedding_length=256, feed_forward_length=512, block_count=1)


@pytest.mark.parametrize("kind", list(TensorType))
def test_every_weight_type_runs_to_the_interpreters_bits(kind: TensorType, tmp_path: Path) -> None:
    path = write_tiny_llama(
        tmp_path / "m.gguf", kind, metadata=wide_llama(), has_biases=True, has_output=True
    )
    checkpoint, plan = open_tiny(path)
    tokens = some_tokens(70)
    native = NativeRuntime(plan, checkpoint.tensors, NUM_BLOCKS, 2, LIMITS)
    exact = NumpyInterpreter(plan, checkpoint.tensors, NUM_BLOCKS, InterpreterMode.QUANTISED_EXACT)
    table = [5, 9, 2]
    np.testing.assert_array_equal(logits_of(native, tokens, 70, table), logits_of(exact, tokens, 70, table))


@pytest.mark.parametrize("up_kind", [TensorType.Q6_K, TensorType.F16])
def test_gate_and_up_may_be_of_two_types(up_kind: TensorType, tmp_path: Path) -> None:
    up = random_tensor(np.random.default_rng(5), up_kind, (512, 256), 0.1)
    path = write_tiny_llama(
        tmp_path / "m.gguf", TensorType.Q4_K, metadata=wide_llama(), more_tensors={"blk.0.ffn_up.weight": up}
    )
    checkpoint, plan = open_tiny(path)
    tokens = some_tokens(70)
    native = NativeRuntime(plan, checkpoint.tensors, NUM_BLOCKS, 2, LIMITS)
    exact = NumpyInterpreter(plan, checkpoint.tensors, NUM_BLOCKS, InterpreterMode.QUANTISED_EXACT)
    for chunk in (70, 20, 1):  # Columns are gone on with in steps of few rows only.
        table = [5, 9, 2]
        ours, theirs = (logits_of(each, tokens, chunk, table) for each in (native, exact))
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0},
        {"attention.sliding_window": None},
        {"attention.head_count": 4, "attention.head_count_kv": 4},
    ],
)
def test_gemma_pathways_run_to_the_interpreters_bits(changes: dict[str, object], tmp_path: Path) -> None:
    path = write_tiny_gemma3(tmp_path / "m.gguf", TensorType.Q4_0, metadata=gemma3_metadata(**changes))
    checkpoint, plan = open_tiny(path)
    tokens = some_tokens(300)
    native = NativeRuntime(plan, checkpoint.tensors, NUM_BLOCKS, 2, LIMITS)
    exact = NumpyInterpreter(plan, checkpoint.tensors, NUM_BLOCKS, InterpreterMode.QUANTISED_EXACT)
    table = list(range(20, 30))
    np.testing.assert_array_equal(logits_of(native, tokens, 300, table), logits_of(exact, tokens, 300, table))


@pytest.mark.parametrize("write", [write_tiny_llama, write_tiny_gemma3])
def test_int8_kv_runs_to_the_interpreters_bits(write: WriteTiny, tmp_path: Path) -> None:
    checkpoint, plan = open_tiny(write(tmp_path / "m.gguf", TensorType.Q8_0))
    tokens = some_tokens(300)
    native = NativeRuntime(plan, checkpoint.tensors, NUM_BLOCKS, 2, LIMITS, kv_dtype=KvDtype.INT8)
    exact = NumpyInterpreter(
        plan, checkpoint.tensors, NUM_BLOCKS, InterpreterMode.QUANTISED_EXACT, kv_dtype=KvDtype.INT8
    )
    table = list(range(20, 30))
    bits = logits_of(native, tokens, 300, table)
    np.testing.assert_array_equal(bits, logits_of(exact, tokens, 300, table))
    half = logits_of(NativeRuntime(plan, checkpoint.tensors, NUM_BLOCKS, 2, LIMITS), tokens, 300, table)
    assert 0 < (bits - half).std() < 0.05 * half.std()


def test_the_type_of_the_cache_is_part_of_the_numerics(tiny_gemma: tuple[Checkpoint, ModelPlan]) -> None:
    checkpoint, plan = tiny_gemma
    ids = {
        NativeRuntime(plan, checkpoint.tensors, 1, 1, LIMITS, kv_dtype=kv_dtype).numerics_id
        for kv_dtype in KvDtype
    }
    assert len(ids) == len(KvDtype)
    assert all(f"kv={kv_dtype} " in " ".join(ids) for kv_dtype in KvDtype)


@pytest.mark.parametrize("kv_dtype", KvDtype)
@pytest.mark.parametrize("kernel_set", _native.kernel_sets())
@pytest.mark.parametrize("num_threads", [1, 2, 3, 5])
def test_kernel_set_threads_and_chunks_do_not_change_a_bit(
    tiny_gemma: tuple[Checkpoint, ModelPlan], kernel_set: str, num_threads: int, kv_dtype: KvDtype
) -> None:
    checkpoint, plan = tiny_gemma
    tokens = some_tokens(400)
    table = list(range(13))
    reference = NativeRuntime(plan, checkpoint.tensors, NUM_BLOCKS, 1, LIMITS, "portable", kv_dtype)
    expected = logits_of(reference, tokens, 400, table)
    runtime = NativeRuntime(plan, checkpoint.tensors, NUM_BLOCKS, num_threads, LIMITS, kernel_set, kv_dtype)
    for chunk in (1, 7, 64, 400):
        np.testing.assert_array_equal(logits_of(runtime, tokens, chunk, table), expected)


@settings(deadline=None, max_examples=25)
@given(
    lengths=st.lists(st.integers(1, 200), min_size=1, max_size=4),
    threads=st.sampled_from([1, 2, 3]),
    cut=st.integers(0, 2**32 - 1),
    kv_dtype=st.sampled_from(KvDtype),
)
def test_company_in_a_step_does_not_change_a_bit(
    tiny_gemma: tuple[Checkpoint, ModelPlan], lengths: list[int], threads: int, cut: int, kv_dtype: KvDtype
) -> None:
    """Sequences advance by random chunks in shared steps and random blocks; bits are those of each alone."""
    checkpoint, plan = tiny_gemma
    generator = np.random.default_rng(cut)
    sequences = [some_tokens(length, seed) for seed, length in enumerate(lengths)]
    free = [int(block) for block in generator.permutation(NUM_BLOCKS)]
    tables = [[free.pop() for _ in range(-(-length // 32))] for length in lengths]
    runtime = NativeRuntime(plan, checkpoint.tensors, NUM_BLOCKS, threads, LIMITS, kv_dtype=kv_dtype)
    collected: list[list[FloatArray]] = [[] for _ in lengths]
    done = [0] * len(lengths)
    while any(count < length for count, length in zip(done, lengths, strict=True)):
        parts, who = [], []
        for i, length in enumerate(lengths):
            count = int(generator.integers(0, min(length - done[i], 120) + 1))
            if count:
                parts.append((sequences[i][done[i] : done[i] + count], done[i], tables[i]))
                who.append((i, count))
        if not parts:
            continue
        logits = runtime.run(batch_of(parts), LogitsDetail.FULL).logits
        row = 0
        for i, count in who:
            collected[i].append(logits[row : row + count])
            row += count
            done[i] += count
    alone = NativeRuntime(plan, checkpoint.tensors, NUM_BLOCKS, 1, LIMITS, kv_dtype=kv_dtype)
    for i, tokens in enumerate(sequences):
        expected = logits_of(alone, tokens, len(tokens), tables[i])
        np.testing.assert_array_equal(np.concatenate(collected[i]), expected)


@pytest.mark.parametrize("kv_dtype", KvDtype)
def test_recycled_blocks_leave_no_trace(tiny_gemma: tuple[Checkpoint, ModelPlan], kv_dtype: KvDtype) -> None:
    checkpoint, plan = tiny_gemma
    tokens = some_tokens(90, 1)
    fresh = NativeRuntime(plan, checkpoint.tensors, NUM_BLOCKS, 2, LIMITS, kv_dtype=kv_dtype)
    used = NativeRuntime(plan, checkpoint.tensors, NUM_BLOCKS, 2, LIMITS, kv_dtype=kv_dtype)
    logits_of(used, some_tokens(128, 2), 128, [0, 1, 2, 3])
    np.testing.assert_array_equal(
        logits_of(used, tokens, 33, [3, 0, 2]), logits_of(fresh, tokens, 33, [3, 0, 2])
    )


def test_a_row_may_be_an_output_more_often_than_a_step_has_rows(
    tiny_gemma: tuple[Checkpoint, ModelPlan],
) -> None:
    """A short step with many outputs: memory that is copied for each thread in short steps has few rows."""
    checkpoint, plan = tiny_gemma
    once = batch_of([([3], 0, [0])])
    often = dataclasses.replace(once, output_rows=np.zeros(100, np.int32))
    expected = NativeRuntime(plan, checkpoint.tensors, NUM_BLOCKS, 1, LIMITS).run(once, LogitsDetail.FULL)
    runtime = NativeRuntime(plan, checkpoint.tensors, NUM_BLOCKS, 3, LIMITS)
    for _ in range(3):
        logits = runtime.run(often, LogitsDetail.FULL).logits
        np.testing.assert_array_equal(logits, np.repeat(expected.logits, 100, axis=0))


def test_digest_is_that_of_the_logits_and_sampling_repeats(tiny_gemma: tuple[Checkpoint, ModelPlan]) -> None:
    from ferrum.runtimes.exact_operations import logit_digest

    checkpoint, plan = tiny_gemma
    runtime = NativeRuntime(plan, checkpoint.tensors, NUM_BLOCKS, 2, LIMITS)
    batch = batch_of([(some_tokens(20), 0, [1])])
    logits = runtime.run(batch, LogitsDetail.FULL).logits
    np.testing.assert_array_equal(runtime.run(batch, LogitsDetail.DIGEST).logit_digests, logit_digest(logits))
    sampling = SamplingBatch(
        temperature=np.zeros(20, np.float32),
        top_k=np.zeros(20, np.int32),
        top_p=np.ones(20, np.float32),
        min_p=np.zeros(20, np.float32),
        seed=np.zeros(20, np.uint64),
        position=np.arange(20, dtype=np.int32),
    )
    greedy = dataclasses.replace(batch, sampling=sampling)
    np.testing.assert_array_equal(runtime.run(greedy).token_ids, logits.argmax(axis=1))


def test_log_probabilities_are_those_of_the_exact_interpreter(
    tiny_gemma: tuple[Checkpoint, ModelPlan],
) -> None:
    checkpoint, plan = tiny_gemma
    tokens = some_tokens(20)
    native = NativeRuntime(plan, checkpoint.tensors, NUM_BLOCKS, 2, LIMITS)
    exact = NumpyInterpreter(
        plan, checkpoint.tensors, NUM_BLOCKS, InterpreterMode.QUANTISED_EXACT, choose_tokens
    )
    wanted = LogprobBatch(
        num_entries=np.arange(20, dtype=np.int32) % 8,
        known_tokens=np.array([*tokens[1:15], *[-1] * 6], np.int32),
    )
    choices = [SamplingInstruction(1.0, 0, 1.0, 0.0, seed=3, position=row) for row in range(20)]
    batch = dataclasses.replace(
        batch_of([(tokens, 0, [1])]), sampling=build_sampling_batch(choices), logprobs=wanted
    )
    found, expected = native.run(batch), exact.run(batch)
    np.testing.assert_array_equal(found.token_ids, expected.token_ids)
    assert found.token_ids[:14].tolist() == tokens[1:15]
    assert found.logprobs is not None
    assert expected.logprobs is not None
    for name in ("values", "ranks", "top_ids", "top_values"):
        np.testing.assert_array_equal(getattr(found.logprobs, name), getattr(expected.logprobs, name))
    assert found.logprobs.ranks[0] == 0  # nobody asked
    for bad in ({"num_entries": np.full(20, -1, np.int32)}, {"known_tokens": np.full(20, 10**6, np.int32)}):
        with pytest.raises(ValueError, match=r"wanted|vocabulary"):
            native.run(dataclasses.replace(batch, logprobs=dataclasses.replace(wanted, **bad)))


def test_the_weights_outlive_their_checkpoint(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "m.gguf")
    checkpoint, plan = open_tiny(path)
    runtime = NativeRuntime(plan, checkpoint.tensors, NUM_BLOCKS, 1, LIMITS)
    before = logits_of(runtime, some_tokens(5), 5, [0])
    checkpoint.close()
    path.write_bytes(b"")
    np.testing.assert_array_equal(logits_of(runtime, some_tokens(5), 5, [0]), before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": np.array([VOCABULARY], np.int32)}, "vocabulary"),
        ({"token_ids": np.array([-1], np.int32)}, "vocabulary"),
        ({"positions": np.array([4096], np.int32)}, "context"),
        ({"block_tables": np.array([[NUM_BLOCKS]], np.int32)}, "outside the arena"),
        ({"block_tables": np.array([[-1]], np.int32)}, "outside the arena"),
        ({"positions": np.array([40], np.int32)}, "too short"),
        ({"output_rows": np.array([1], np.int32)}, "output row"),
        ({"sequence_starts": np.array([0, 2], np.int32)}, "cover"),
    ],
)
def test_a_step_that_would_leave_its_memory_is_refused(
    tiny_gemma: tuple[Checkpoint, ModelPlan], change: dict[str, np.ndarray], message: str
) -> None:
    checkpoint, plan = tiny_gemma
    runtime = NativeRuntime(plan, checkpoint.tensors, NUM_BLOCKS, 1, LIMITS)
    good = batch_of([([3], 0, [0])])
    fields = {name: change.get(name, getattr(good, name)) for name in StepBatch.__slots__}
    with pytest.raises(ValueError, match=message):
        runtime.run(StepBatch(**fields))
    assert np.isfinite(runtime.run(good, LogitsDetail.FULL).logits).all()


def test_odd_heads_and_unknown_kernel_sets_are_refused_by_name(tmp_path: Path) -> None:
    narrow = llama_metadata(embedding_length=32)  # heads of 8
    checkpoint, plan = open_tiny(write_tiny_llama(tmp_path / "m.gguf", metadata=narrow))
    with pytest.raises(UnsupportedModel, match="width 8"):
        NativeRuntime(plan, checkpoint.tensors, 4)
    checkpoint, plan = open_tiny(write_tiny_llama(tmp_path / "n.gguf"))
    with pytest.raises(InvalidConfig, match="portable"):
        NativeRuntime(plan, checkpoint.tensors, 4, kernel_set="mmx")
    with pytest.raises(InvalidConfig, match="num_threads"):
        NativeRuntime(plan, checkpoint.tensors, 4, num_threads=0)


@pytest.mark.models
def test_abort_stops_a_running_step(smollm2_path: Path) -> None:
    import threading
    import time

    checkpoint = open_checkpoint(smollm2_path)
    plan = build_plan(checkpoint, 1024)
    runtime = NativeRuntime(plan, checkpoint.tensors, NUM_BLOCKS, 2)
    batch = batch_of([([7] * 512, 0, list(range(16)))])
    last_row = StepBatch(
        *(getattr(batch, name) for name in StepBatch.__slots__[:4]), batch.output_rows[-1:], None
    )
    began = time.monotonic()
    timer = threading.Thread(target=lambda: (time.sleep(0.05), runtime.abort()))
    timer.start()
    with pytest.raises(StepAborted):
        runtime.run(last_row)
    stopped_after = time.monotonic() - began
    timer.join()
    began = time.monotonic()
    assert np.isfinite(runtime.run(last_row, LogitsDetail.FULL).logits).all()
    assert stopped_after < time.monotonic() - began
