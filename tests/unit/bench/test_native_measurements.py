"""The native measurements measure something, of the size asked for, and refuse what they cannot."""

from __future__ import annotations

import pytest

from ferrum import _native
from ferrum.bench.ceilings import (
    CACHED_OUTPUTS,
    CACHED_WEIGHT_BYTES,
    CeilingMeter,
    buffer_bytes,
    cached_columns,
)
from ferrum.bench.machine import Machine
from ferrum.core.kv_dtype import KvDtype
from ferrum.weights.tensor_types import TensorType

MEBIBYTE = 2**20
KERNEL_SETS = _native.kernel_sets()


@pytest.mark.parametrize("threads", [1, 3])
def test_a_buffer_is_read_whole_in_every_pass(threads: int) -> None:
    buffer = _native.measure.ReadBuffer(7 * MEBIBYTE, threads)
    # Rounded up to whole huge pages for each thread.
    assert 7 * MEBIBYTE <= buffer.num_bytes <= 7 * MEBIBYTE + threads * 2 * MEBIBYTE
    for streams in (1, 2, 4, 8):
        rates = buffer.measure(streams, 3)
        assert len(rates) == 3
        assert all(1e6 < rate < 1e13 for rate in rates)


@pytest.mark.parametrize("streams", [0, 3, 16])
def test_only_known_ways_of_reading_are_measured(streams: int) -> None:
    with pytest.raises(ValueError, match="streams must be"):
        _native.measure.ReadBuffer(MEBIBYTE, 1).measure(streams, 1)


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
@pytest.mark.parametrize("kind", list(TensorType))
def test_every_type_has_a_rate_of_its_weights_size(kernel_set: str, kind: TensorType) -> None:
    columns, rows = 256, 3
    operations, weights = _native.measure.linear_rate(kernel_set, kind.ggml_id, 48, columns, rows, 2, 0.001)
    assert operations > 0
    # Both rates are of the same passes over the same weight.
    passes = operations / (2 * 48 * columns * rows)
    assert weights / passes == pytest.approx(_native.packed_bytes(kind.ggml_id, 48, columns))


@pytest.mark.parametrize("kernel_set", KERNEL_SETS)
@pytest.mark.parametrize("kv_type", list(_native.KvType))
def test_attention_has_a_rate(kernel_set: str, kv_type: _native.KvType) -> None:
    assert _native.measure.attention_rate(kernel_set, kv_type, 32, 4, 2, 2, 0.001) > 0


@pytest.mark.parametrize(
    ("outputs", "columns", "rows", "threads"),
    [(8, 256, 1, 1), (16, 100, 1, 1), (16, 256, 0, 1), (16, 256, 1, 0)],
)
def test_impossible_shapes_are_refused(outputs: int, columns: int, rows: int, threads: int) -> None:
    with pytest.raises(ValueError):
        _native.measure.linear_rate("", TensorType.Q4_K.ggml_id, outputs, columns, rows, threads, 0.001)


def test_a_meter_measures_every_kind_of_arithmetic_a_plan_has() -> None:
    from ferrum.bench.ceilings import ArithmeticKinds

    kinds = ArithmeticKinds((TensorType.Q4_1, TensorType.F16), 64, KvDtype.INT8)
    meter = CeilingMeter(kinds, KERNEL_SETS[0], num_threads=1, num_bytes=4 * MEBIBYTE)
    ceilings = meter.measure()
    assert set(ceilings.linear_operations) == {TensorType.Q4_1, TensorType.F16}
    rates = (
        ceilings.read_bytes_per_second,
        ceilings.attention_operations,
        *ceilings.linear_operations.values(),
    )
    assert all(rate > 0 for rate in rates)


@pytest.mark.parametrize("kind", list(TensorType))
def test_weights_measured_in_the_cache_fit_there(kind: TensorType) -> None:
    columns = cached_columns(kind)
    assert columns % kind.block_size == 0
    assert CACHED_OUTPUTS * kind.row_bytes(columns) <= 1.1 * CACHED_WEIGHT_BYTES


def test_the_buffer_is_larger_than_the_caches_and_smaller_than_the_memory() -> None:
    def machine(cache: int | None, memory: int | None) -> Machine:
        return Machine("cpu", 2, cache, memory, "Linux")

    assert buffer_bytes(machine(32 * MEBIBYTE, None)) == 256 * MEBIBYTE
    assert buffer_bytes(machine(100 * MEBIBYTE, 64 * 1024 * MEBIBYTE)) == 800 * MEBIBYTE
    assert buffer_bytes(machine(None, 1024 * MEBIBYTE)) == 128 * MEBIBYTE
