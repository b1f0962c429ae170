"""Lowering: from the authored plan to the executable plan of the native runtime.

Four things happen, and none of them changes a bit of the result: neighbouring row-wise operations become
one chain, linears that read one buffer become one group, which also does what only needs its columns
(fusion.py), and buffers whose lifetimes are apart share memory (storage_assignment.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from ferrum.plan.executable_plan import (
    ExecutableOperation,
    ExecutablePlan,
    LinearGroup,
    Quantize,
    RowChain,
    RowSpace,
    RowWise,
    RowWiseOperation,
    StoreKv,
)
from ferrum.plan.fusion import fuse
from ferrum.plan.model_plan import ModelPlan
from ferrum.plan.operations import Attention, Linear, SelectOutputRows, input_buffers
from ferrum.plan.storage_assignment import assign_storages

_WIDEST_REPLICATED = 16_384


def lower(plan: ModelPlan) -> ExecutablePlan:
    """The executable plan; a pure function of the authored one."""
    operations = tuple(fuse(_Scheduling(plan).run(), {buffer.name: buffer.width for buffer in plan.buffers}))
    spaces = row_spaces(plan)
    floats, quantized = assign_storages(plan, operations, spaces)
    return ExecutablePlan(
        authored=plan,
        operations=operations,
        storages=floats.storages,
        storage_of=floats.storage_of,
        quantized_storages=quantized.storages,
        quantized_storage_of=quantized.storage_of,
    )


def row_spaces(plan: ModelPlan) -> dict[str, RowSpace]:
    """What the rows of each buffer are: outputs from SelectOutputRows on, tokens before."""
    spaces: dict[str, RowSpace] = {}
    for operation in plan.operations:
        inputs = input_buffers(operation)
        is_output = isinstance(operation, SelectOutputRows) or any(
            spaces[name] is RowSpace.OUTPUTS for name in inputs
        )
        spaces[operation.out] = RowSpace.OUTPUTS if is_output else RowSpace.TOKENS
    return spaces


class _Scheduling:
    """Greedy list scheduling: all row-wise work that is ready, then one group of linears or one attention.

    Mutable while ``run`` iterates: what is ready, what the others wait for, the buffers quantised. Every turn
    looks only at what became ready, so the work grows with the plan and not with its square.
    """

    def __init__(self, plan: ModelPlan) -> None:
        self._operations = plan.operations
        self._spaces = row_spaces(plan)
        self._widths = {buffer.name: buffer.width for buffer in plan.buffers}
        self._is_quantized = {weight.name: weight.type.is_quantized for weight in plan.weights}
        self._quantized: set[str] = set()
        self._readers: dict[str, list[int]] = {}
        self._num_missing = [0] * len(plan.operations)
        # Heaps of places in the authored order.
        self._ready_row_wise: list[int] = []
        self._ready_linears: list[int] = []
        self._ready_attentions: list[int] = []
        for place, operation in enumerate(plan.operations):
            inputs = set(input_buffers(operation))
            self._num_missing[place] = len(inputs)
            for name in inputs:
                self._readers.setdefault(name, []).append(place)
            if not inputs:
                self._note_ready(place)

    def run(self) -> Iterator[ExecutableOperation]:
        chain: list[RowWise] = []
        space = RowSpace.TOKENS
        while self._ready_row_wise or self._ready_linears or self._ready_attentions:
            for operation in self._take_ready_row_wise():
                if self._spaces[operation.out] is not space:
                    yield from self._chain(space, chain)
                    chain, space = [], self._spaces[operation.out]
                chain.append(operation)
            linears = self._take_ready_linears()
            if linears:
                x = linears[0].x
                on_quantized = tuple(op for op in linears if self._is_quantized[op.weight])
                on_floats = tuple(op for op in linears if not self._is_quantized[op.weight])
                if on_quantized and x not in self._quantized:
                    self._quantized.add(x)
                    if self._spaces[x] is not space:
                        yield from self._chain(space, chain)
                        chain, space = [], self._spaces[x]
                    chain.append(Quantize(x))
                yield from self._chain(space, chain)
                chain = []
                if on_quantized:
                    yield LinearGroup(x, True, self._spaces[x], on_quantized)
                if on_floats:
                    yield LinearGroup(x, False, self._spaces[x], on_floats)
            elif (attention := self._take_ready_attention()) is not None:
                chain.append(StoreKv(attention.layer, attention.k, attention.v))
                yield from self._chain(space, chain)
                chain = []
                yield attention
        yield from self._chain(space, chain)

    def _take_ready_row_wise(self) -> Iterator[RowWiseOperation]:
        """In authored order; an operation that becomes ready on the way is taken too."""
        while self._ready_row_wise:
            operation = self._operations[heappop(self._ready_row_wise)]
            assert not isinstance(operation, Linear | Attention)
            self._note_computed(operation.out)
            yield operation

    def _take_ready_linears(self) -> tuple[Linear, ...]:
        """The first ready linear and every other one that reads the same buffer: they are ready alike."""
        taken: list[Linear] = []
        others: list[int] = []
        while self._ready_linears:
            place = heappop(self._ready_linears)
            operation = self._operations[place]
            assert isinstance(operation, Linear)
            if taken and operation.x != taken[0].x:
                others.append(place)
            else:
                taken.append(operation)
        self._ready_linears = others
        for linear in taken:
            self._note_computed(linear.out)
        return tuple(taken)

    def _take_ready_attention(self) -> Attention | None:
        if not self._ready_attentions:
            return None
        operation = self._operations[heappop(self._ready_attentions)]
        assert isinstance(operation, Attention)
        self._note_computed(operation.out)
        return operation

    def _note_computed(self, name: str) -> None:
        for place in self._readers.get(name, ()):
            self._num_missing[place] -= 1
            if self._num_missing[place] == 0:
                self._note_ready(place)

    def _note_ready(self, place: int) -> None:
        operation = self._operations[place]
        if isinstance(operation, Linear):
            heappush(self._ready_linears, place)
        elif isinstance(operation, Attention):
            heappush(self._ready_attentions, place)
        else:
            heappush(self._ready_row_wise, place)

    def _chain(self, space: RowSpace, steps: list[RowWise]) -> Iterator[RowChain]:
        if steps:
            yield RowChain(space, all(self._is_replicable(step) for step in steps), tuple(steps))

    def _is_replicable(self, step: RowWise) -> bool:
        """The cache is shared; and a row of logits is too long to be worth doing twice."""
        if isinstance(step, StoreKv):
            return False
        return isinstance(step, Quantize) or self._widths[step.out] <= _WIDEST_REPLICATED
