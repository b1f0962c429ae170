"""Fusion: in steps of few rows, what only needs a group's columns is done where they were made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ferrum.plan.executable_plan import ExecutableOperation, LinearGroup, Quantize, RowChain, RowWise
from ferrum.plan.operations import Activation, Add, Multiply, input_buffers

# Values that are quantised together: a slice of columns begins and ends between such groups.
_GROUP = 32


def fuse(
    operations: Iterable[ExecutableOperation], widths: Mapping[str, int]
) -> Iterator[ExecutableOperation]:
    """The operations, each group of linears with the first steps of the chain after it that it can do itself.

    That is what reads nothing but columns that the group, or a step before, has made. ``widths`` are those of
    the float32 buffers.
    """
    group: LinearGroup | None = None
    for operation in operations:
        if group is not None and isinstance(operation, RowChain) and operation.space is group.space:
            steps, rest = _split(group, operation.steps, widths)
            yield replace(group, then=steps)
            if steps:
                yield replace(operation, is_replicable=False, steps=steps, follows_group=True)
            if rest:
                yield replace(operation, steps=rest)
            group = None
            continue
        if group is not None:
            yield group
        group = operation if isinstance(operation, LinearGroup) else None
        if group is None:
            yield operation
    if group is not None:
        yield group


def _split(
    group: LinearGroup, steps: tuple[RowWise, ...], widths: Mapping[str, int]
) -> tuple[tuple[RowWise, ...], tuple[RowWise, ...]]:
    """Steps that the group can do, and the others."""
    count = _count_of_column_steps(group, steps, widths)
    return steps[:count], steps[count:]


def _count_of_column_steps(group: LinearGroup, steps: tuple[RowWise, ...], widths: Mapping[str, int]) -> int:
    made = {linear.out for linear in group.linears}
    group_widths = {widths[name] for name in made}
    if len(group_widths) > 1 or group_widths.pop() % _GROUP:
        return 0
    count = 0
    for step in steps:
        if isinstance(step, Quantize):
            if step.x not in made:
                break
        elif isinstance(step, Activation | Add | Multiply) and made.issuperset(input_buffers(step)):
            made.add(step.out)
        else:
            break
        count += 1
    return count
