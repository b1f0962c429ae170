"""Lowering keeps the plan's meaning: order, memory and cuts checked by walking the executable plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from ferrum.models.architectures import build_plan
from ferrum.plan.executable_plan import (
    ExecutableOperation,
    ExecutablePlan,
    LinearGroup,
    Quantize,
    RowChain,
    RowSpace,
    RowWise,
    StoreKv,
)
from ferrum.plan.fusion import fuse
from ferrum.plan.lowering import lower
from ferrum.plan.operations import (
    Activation,
    Attention,
    Linear,
    Multiply,
    RmsNorm,
    SelectOutputRows,
    input_buffers,
)
from ferrum.weights.checkpoint import open_checkpoint
from ferrum.weights.tensor_types import TensorType
from tiny_models import gemma3_metadata, write_tiny_gemma3, write_tiny_llama

WRITERS: dict[str, Callable[[Path], Path]] = {
    "llama-float": lambda path: write_tiny_llama(path, TensorType.F16, has_biases=True, has_output=True),
    "llama-quantised": lambda path: write_tiny_llama(path, TensorType.Q4_0),
    "gemma": lambda path: write_tiny_gemma3(
        path, TensorType.Q8_0, metadata=gemma3_metadata(final_logit_softcapping=30.0)
    ),
}


@pytest.fixture(params=sorted(WRITERS))
def lowered(request: pytest.FixtureRequest, tmp_path: Path) -> ExecutablePlan:
    return lower(build_plan(open_checkpoint(WRITERS[request.param](tmp_path / "m.gguf"))))


def as_run(plan: ExecutablePlan, few_rows: bool) -> list[ExecutableOperation]:
    """The operations, with what is there twice only where a step of few, or of many, rows does it."""
    if few_rows:
        return [op for op in plan.operations if not (isinstance(op, RowChain) and op.follows_group)]
    return [replace(op, then=()) if isinstance(op, LinearGroup) else op for op in plan.operations]


@pytest.mark.parametrize("few_rows", [True, False])
def test_every_authored_operation_runs_once_and_after_its_inputs(
    lowered: ExecutablePlan, few_rows: bool
) -> None:
    computed: list[str] = []
    for operation in as_run(lowered, few_rows):
        if isinstance(operation, RowChain):
            for step in operation.steps:
                if isinstance(step, Quantize):
                    assert step.x in computed
                elif isinstance(step, StoreKv):
                    assert {step.k, step.v} <= set(computed)
                else:
                    assert set(input_buffers(step)) <= set(computed)
                    computed.append(step.out)
        elif isinstance(operation, LinearGroup):
            assert operation.x in computed
            made = [linear.out for linear in operation.linears]
            for column_step in operation.then:
                if isinstance(column_step, Quantize):
                    assert column_step.x in made
                else:
                    assert not isinstance(column_step, StoreKv)
                    assert set(input_buffers(column_step)) <= set(made)
                    made.append(column_step.out)
            computed += made
        else:
            assert operation.q in computed
            computed.append(operation.out)
    assert sorted(computed) == sorted(operation.out for operation in lowered.authored.operations)


@pytest.mark.parametrize("few_rows", [True, False])
def test_a_buffer_is_still_in_its_storage_when_it_is_read(lowered: ExecutablePlan, few_rows: bool) -> None:
    """Walks the plan as the slowest thread beside the fastest: who owns each storage at each read."""
    owner: dict[int, str] = {}
    quantized_owner: dict[int, str] = {}
    late: list[str] = []

    def read(name: str) -> None:
        assert owner[lowered.storage_of[name]] == name

    def write(name: str) -> None:
        owner[lowered.storage_of[name]] = name

    for operation in as_run(lowered, few_rows):
        if isinstance(operation, RowChain):
            shared = [] if operation.is_replicable else None
            for step in operation.steps:
                if isinstance(step, Quantize):
                    read(step.x)
                    quantized_owner[lowered.quantized_storage_of[step.x]] = step.x
                    continue
                inputs = (step.k, step.v) if isinstance(step, StoreKv) else input_buffers(step)
                for name in inputs:
                    read(name)
                    if shared is not None and not lowered.storages[lowered.storage_of[name]].is_replicated:
                        shared.append(name)
                if isinstance(step, SelectOutputRows):
                    write(step.out)
                    read(step.x)  # other rows are still copied
                elif not isinstance(step, StoreKv):
                    write(step.out)
            late += shared or []
            if shared is None:
                late = []
            continue
        if isinstance(operation, LinearGroup):
            for linear in operation.linears:
                write(linear.out)
            # Of some columns all is done before others begin: nothing written may be what others still read.
            quantized_owner.update(
                {lowered.quantized_storage_of[s.x]: s.x for s in operation.then if isinstance(s, Quantize)}
            )
            for column_step in operation.then:
                if isinstance(column_step, Quantize):
                    read(column_step.x)
                elif not isinstance(column_step, StoreKv):
                    for name in input_buffers(column_step):
                        read(name)
                    write(column_step.out)
            if operation.is_quantized:
                assert quantized_owner[lowered.quantized_storage_of[operation.x]] == operation.x
            else:
                read(operation.x)
        else:
            write(operation.out)
            read(operation.q)
        for name in late:
            read(name)
        late = []
    read(lowered.authored.logits)


def test_only_replicable_chains_write_replicated_storage(lowered: ExecutablePlan) -> None:
    for operation in lowered.operations:
        if isinstance(operation, RowChain):
            written = [step.out for step in operation.steps if not isinstance(step, Quantize | StoreKv)]
            copies = [step.x for step in operation.steps if isinstance(step, Quantize)]
            for name in written:
                assert lowered.storages[lowered.storage_of[name]].is_replicated is operation.is_replicable
            for name in copies:
                storage = lowered.quantized_storages[lowered.quantized_storage_of[name]]
                assert storage.is_replicated is operation.is_replicable
            assert not (operation.is_replicable and any(isinstance(s, StoreKv) for s in operation.steps))
        else:
            outs = (
                [operation.out] if isinstance(operation, Attention) else [op.out for op in operation.linears]
            )
            for name in outs:
                assert not lowered.storages[lowered.storage_of[name]].is_replicated


def test_linears_over_one_input_share_a_group_and_layers_have_few_operations(
    lowered: ExecutablePlan,
) -> None:
    groups = [operation for operation in lowered.operations if isinstance(operation, LinearGroup)]
    num_layers = len(lowered.authored.kv_layers)
    num_linears = sum(isinstance(operation, Linear) for operation in lowered.authored.operations)
    assert num_linears == 7 * num_layers + 1
    assert len(groups) == 4 * num_layers + 1  # q k v; output; gate up; down; and the head
    # A layer is four groups, one attention and the chains between them.
    assert len(lowered.operations) <= 10 * num_layers + 6


def test_a_gated_product_is_quantised_by_the_group_that_made_it_and_by_the_chain_after_it(
    tmp_path: Path,
) -> None:
    path = write_tiny_llama(tmp_path / "m.gguf", TensorType.Q4_0)
    operations = lower(build_plan(open_checkpoint(path))).operations
    groups = [
        (operation, after)
        for operation, after in pairwise(operations)
        if isinstance(operation, LinearGroup) and operation.then
    ]
    assert groups
    for group, after in groups:
        assert [type(step) for step in group.then] == [Activation, Multiply, Quantize]
        assert isinstance(after, RowChain)
        assert after.follows_group
        assert after.steps == group.then


@pytest.mark.parametrize(
    ("steps", "widths", "count"),
    [
        ((Multiply("m", "a", "b"), Quantize("m")), (64, 64), 2),
        ((Multiply("m", "a", "other"), Quantize("m")), (64, 64), 0),  # reads what the group did not make
        ((Multiply("m", "a", "b"), Quantize("other")), (64, 64), 1),
        ((Multiply("m", "a", "b"), RmsNorm("n", "m", "weight", 1e-5)), (64, 64), 1),  # needs whole rows
        ((Multiply("m", "a", "b"),), (64, 32), 0),
        ((Multiply("m", "a", "b"),), (48, 48), 0),  # a group of 32 would belong to two members
    ],
)
def test_a_group_takes_only_what_needs_no_more_than_its_columns(
    steps: tuple[RowWise, ...], widths: tuple[int, int], count: int
) -> None:
    linears = (Linear("a", "x", "a.weight", None), Linear("b", "x", "b.weight", None))
    group = LinearGroup("x", True, RowSpace.TOKENS, linears)
    chain = RowChain(RowSpace.TOKENS, True, steps)
    fused = list(fuse([group, chain], {"a": widths[0], "b": widths[1], "m": widths[0]}))
    assert isinstance(fused[0], LinearGroup)
    assert fused[0].then == steps[:count]
    rest = [(op.steps, op.follows_group) for op in fused[1:] if isinstance(op, RowChain)]
    assert rest == [each for each in ((steps[:count], True), (steps[count:], False)) if each[0]]


def test_memory_does_not_grow_with_layers(lowered: ExecutablePlan) -> None:
    assert len(lowered.storages) <= 24
    assert {storage.space for storage in lowered.storages} == {RowSpace.TOKENS, RowSpace.OUTPUTS}
