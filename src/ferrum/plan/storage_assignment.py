"""Which buffers share memory: two may, when the last use of one comes before the first of the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ferrum.plan.executable_plan import (
    ExecutableOperation,
    LinearGroup,
    Quantize,
    RowChain,
    RowSpace,
    Storage,
    StoreKv,
)
from ferrum.plan.model_plan import ModelPlan
from ferrum.plan.operations import SelectOutputRows, input_buffers


@dataclass(frozen=True, slots=True)
class StorageAssignment:
    storages: tuple[Storage, ...]
    storage_of: dict[str, int]


@dataclass(slots=True)
class _Lifetime:
    """First write and last read, as instants that grow along the plan."""

    first: int
    last: int


@dataclass(slots=True)
class _Touches:
    """What one instant reads and writes.

    Within a chain a step is an instant: its row's inputs are read before its output is written, so a step may
    write over an input that nothing reads later. A group of linears or an attention writes rows while others
    are still read, so it takes two instants: writes first, reads after. What a group does with its columns
    lies between: those steps are to a column what a chain's are to a row. A replicable chain may still read
    what all threads share while a faster one is in the next such operation: those reads count as that one's.
    """

    writes: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    quantized_writes: list[str] = field(default_factory=list)
    quantized_reads: list[str] = field(default_factory=list)


def assign_storages(
    plan: ModelPlan, operations: tuple[ExecutableOperation, ...], spaces: dict[str, RowSpace]
) -> tuple[StorageAssignment, StorageAssignment]:
    """Storage of the float32 buffers, and of the quantised copies (named after what they copy)."""
    floats: dict[str, _Lifetime] = {}
    quantized: dict[str, _Lifetime] = {}
    end = 0
    replicated, replicated_copies = _replicated(operations)
    for end, touches in enumerate(_instants(operations, replicated)):
        _touch(floats, end, touches.reads, touches.writes)
        _touch(quantized, end, touches.quantized_reads, touches.quantized_writes)
    floats[plan.logits].last = end + 1
    widths = {buffer.name: buffer.width for buffer in plan.buffers}
    wanted = {name: Storage(widths[name], spaces[name], name in replicated) for name in floats}
    copies = {name: Storage(widths[name], spaces[name], name in replicated_copies) for name in quantized}
    return _pack(floats, wanted), _pack(quantized, copies)


def _replicated(operations: tuple[ExecutableOperation, ...]) -> tuple[set[str], set[str]]:
    """Buffers, and quantised copies, that replicable chains write."""
    floats: set[str] = set()
    quantized: set[str] = set()
    for operation in operations:
        if isinstance(operation, RowChain) and operation.is_replicable:
            for touches in _chain_instants(operation):
                floats |= set(touches.writes)
                quantized |= set(touches.quantized_writes)
    return floats, quantized


def _instants(operations: tuple[ExecutableOperation, ...], replicated: set[str]) -> Iterator[_Touches]:
    late_reads: list[str] = []
    for operation in operations:
        if isinstance(operation, RowChain):
            if operation.follows_group:
                continue  # The group's instants are its, too: a step runs one of them.
            for touches in _chain_instants(operation):
                if operation.is_replicable:
                    late_reads += [name for name in touches.reads if name not in replicated]
                yield touches
            if operation.is_replicable:
                continue
            yield _Touches(reads=late_reads)
        elif isinstance(operation, LinearGroup):
            copied = [
                step.x for step in operation.then if isinstance(step, Quantize)
            ]  # by columns, in any order
            yield _Touches(writes=[linear.out for linear in operation.linears], quantized_writes=copied)
            for step in operation.then:
                if not isinstance(step, Quantize | StoreKv):
                    yield _Touches(reads=list(input_buffers(step)), writes=[step.out])
            late_reads += copied
            if operation.is_quantized:
                yield _Touches(quantized_reads=[operation.x], reads=late_reads)
            else:
                yield _Touches(reads=[operation.x, *late_reads])
        else:
            yield _Touches(writes=[operation.out])
            yield _Touches(reads=[operation.q, *late_reads])
        late_reads = []


def _chain_instants(chain: RowChain) -> Iterator[_Touches]:
    for step in chain.steps:
        if isinstance(step, Quantize):
            yield _Touches(reads=[step.x], quantized_writes=[step.x])
        elif isinstance(step, StoreKv):
            yield _Touches(reads=[step.k, step.v])
        elif isinstance(step, SelectOutputRows):
            yield _Touches(writes=[step.out])
            yield _Touches(reads=[step.x])
        else:
            yield _Touches(reads=list(input_buffers(step)), writes=[step.out])


def _touch(lifetimes: dict[str, _Lifetime], instant: int, reads: list[str], writes: list[str]) -> None:
    for name in reads:
        lifetimes[name].last = instant
    for name in writes:
        lifetimes[name] = _Lifetime(instant, instant)


def _pack(lifetimes: dict[str, _Lifetime], wanted: dict[str, Storage]) -> StorageAssignment:
    storages: list[Storage] = []
    free_from: list[int] = []
    storage_of: dict[str, int] = {}
    for name, lifetime in sorted(lifetimes.items(), key=lambda item: item[1].first):
        for index, storage in enumerate(storages):
            if storage == wanted[name] and free_from[index] <= lifetime.first:
                break
        else:
            index = len(storages)
            storages.append(wanted[name])
            free_from.append(0)
        storage_of[name] = index
        # A buffer that is never read still occupies its storage while it is written.
        free_from[index] = max(lifetime.last, lifetime.first + 1)
    return StorageAssignment(tuple(storages), storage_of)
