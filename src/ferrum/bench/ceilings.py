"""What this machine can do at most: reading memory, and the kernels' own loops on data in the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from ferrum import _native
from ferrum.bench.floor import Ceilings
from ferrum.bench.independent_reader import IndependentRead, IndependentReader
from ferrum.bench.machine import Machine
from ferrum.bench.statistics import median
from ferrum.core.kv_dtype import KvDtype
from ferrum.plan.model_plan import ModelPlan
from ferrum.plan.operations import Attention, Linear
from ferrum.weights.tensor_types import TensorType

# How many places each thread reads at once; which is fastest depends on the machine's prefetchers.
STREAMS: Final = (1, 2, 4, 8)
PASSES: Final = 3

# Two tiles of weights take 16 KiB at most, their activations 8 KiB: together they fit any first-level cache.
CACHED_OUTPUTS: Final = 32
CACHED_WEIGHT_BYTES: Final = 16_384
MOST_CACHED_COLUMNS: Final = 512
CACHED_ROWS: Final = 16

# 32 queries share 32 keys: K and V of a head take 8 KiB at width 64.
ATTENTION_QUERIES: Final = 32
ATTENTION_BLOCKS: Final = 1

_KV_TYPES = {KvDtype.F16: _native.KvType.F16, KvDtype.INT8: _native.KvType.INT8}

SECONDS_PER_RATE: Final = 0.02

SMALLEST_BUFFER: Final = 256 * 2**20


def buffer_bytes(machine: Machine) -> int:
    """Eight times the last-level cache, so that at most an eighth of a pass can come from it."""
    wanted = max(SMALLEST_BUFFER, 8 * (machine.last_level_cache_bytes or 0))
    return wanted if machine.memory_bytes is None else min(wanted, machine.memory_bytes // 8)


def cached_columns(kind: TensorType) -> int:
    """Whole blocks of any quantised type; fewer of the wide float types."""
    if kind.is_quantized:
        return MOST_CACHED_COLUMNS
    return min(MOST_CACHED_COLUMNS, CACHED_WEIGHT_BYTES // (CACHED_OUTPUTS * kind.block_bytes))


@dataclass(frozen=True, slots=True)
class ArithmeticKinds:
    """The kinds of arithmetic a plan has: weight types of its linears, its widest head, its cache."""

    weight_types: tuple[TensorType, ...]
    head_width: int
    kv_dtype: KvDtype


def arithmetic_kinds(plan: ModelPlan, kv_dtype: KvDtype = KvDtype.F16) -> ArithmeticKinds:
    types = {weight.name: weight.type for weight in plan.weights}
    linears = {types[operation.weight] for operation in plan.operations if isinstance(operation, Linear)}
    heads = [operation.head_width for operation in plan.operations if isinstance(operation, Attention)]
    ordered = tuple(sorted(linears, key=lambda kind: kind.ggml_id))
    return ArithmeticKinds(ordered, max(heads, default=64), kv_dtype)


class CeilingMeter:
    """Keeps the buffer it reads, so that a measurement takes a fraction of a second."""

    def __init__(self, kinds: ArithmeticKinds, kernel_set: str, num_threads: int, num_bytes: int) -> None:
        self._kinds = kinds
        self._kernel_set = kernel_set
        self._num_threads = num_threads
        self._buffer = _native.measure.ReadBuffer(num_bytes, num_threads)

    @property
    def num_bytes(self) -> int:
        """Bytes of the buffer."""
        return int(self._buffer.num_bytes)

    def measure(self) -> Ceilings:
        """All ceilings now, in well under a second."""
        return Ceilings(
            read_bytes_per_second=self.measure_read(),
            linear_operations=self.measure_linears(self._num_threads),
            attention_operations=self.measure_attention(self._num_threads),
        )

    def measure_read(self) -> float:
        """Bytes per second: the best way of reading, the median of its passes."""
        return max(median(self._buffer.measure(streams, PASSES)) for streams in STREAMS)

    def measure_linears(self, num_threads: int) -> dict[TensorType, float]:
        return {
            kind: _native.measure.linear_rate(
                self._kernel_set,
                kind.ggml_id,
                CACHED_OUTPUTS,
                cached_columns(kind),
                CACHED_ROWS,
                num_threads,
                SECONDS_PER_RATE,
            )[0]
            for kind in self._kinds.weight_types
        }

    def measure_attention(self, num_threads: int) -> float:
        return float(
            _native.measure.attention_rate(
                self._kernel_set,
                _KV_TYPES[self._kinds.kv_dtype],
                self._kinds.head_width,
                ATTENTION_QUERIES,
                ATTENTION_BLOCKS,
                num_threads,
                SECONDS_PER_RATE,
            )
        )


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """Our reader and an independent one, measured in turn. ``read`` is the median of what that one saw."""

    read: IndependentRead
    version: str
    own_bytes_per_second: float

    @property
    def factor(self) -> float:
        """What our figure is to be multiplied by: the larger of the two is the ceiling."""
        return max(1.0, self.read.bytes_per_second / self.own_bytes_per_second)

    def as_json(self) -> dict[str, object]:
        return {
            "program": self.read.program,
            "version": self.version,
            "method": self.read.method,
            "threads": self.read.num_threads,
            "bytes_per_second": self.read.bytes_per_second,
            "own_bytes_per_second": self.own_bytes_per_second,
            "factor": self.factor,
        }


def cross_check(
    measure_own: Callable[[], float], reader: IndependentReader, repetitions: int = 3
) -> CrossCheck:
    """Alternates the two readers; raises InvalidConfig when the other program fails."""
    own: list[float] = []
    other: list[IndependentRead] = []
    for _ in range(repetitions):
        own.append(measure_own())
        other.append(reader.measure())
    middle = sorted(other, key=lambda read: read.bytes_per_second)[repetitions // 2]
    return CrossCheck(middle, reader.version, median(own))


def mean_ceilings(several: Iterable[Ceilings], read_factor: float) -> Ceilings:
    """The ceilings around a measurement, as their mean; the machine's speed drifts while it runs."""
    ceilings = list(several)
    count = len(ceilings)
    kinds = ceilings[0].linear_operations.keys()
    return Ceilings(
        read_bytes_per_second=read_factor * sum(each.read_bytes_per_second for each in ceilings) / count,
        linear_operations={
            kind: sum(each.linear_operations[kind] for each in ceilings) / count for kind in kinds
        },
        attention_operations=sum(each.attention_operations for each in ceilings) / count,
    )
