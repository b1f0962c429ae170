"""Lowering keeps the plan's meaning: order, memory and cuts checked by walking the executable plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ferrum.models.architectures import build_plan
from ferrum.plan.executable_plan import ExecutablePlan, LinearGroup, Quantize, RowChain, RowSpace, StoreKv
from ferrum.plan.lowering import lower
from ferrum.plan.operations import Attention, Linear, SelectOutputRows, input_buffers
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


def test_every_authored_operation_runs_once_and_after_its_inputs(lowered: ExecutablePlan) -> None:
    computed: list[str] = []
    for operation in lowered.operations:
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
            computed += [linear.out for linear in operation.linears]
        else:
            assert operation.q in computed
            computed.append(operation.out)
    assert sorted(computed) == sorted(operation.out for operation in lowered.authored.operations)


def test_a_buffer_is_still_in_its_storage_when_it_is_read(lowered: ExecutablePlan) -> None:
    """Walks the plan as the slowest thread beside the fastest: who owns each storage at each read."""
    owner: dict[int, str] = {}
    quantized_owner: dict[int, str] = {}
    late: list[str] = []

    def read(name: str) -> None:
        assert owner[lowered.storage_of[name]] == name

    def write(name: str) -> None:
        owner[lowered.storage_of[name]] = name

    for operation in lowered.operations:
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


def test_memory_does_not_grow_with_layers(lowered: ExecutablePlan) -> None:
    assert len(lowered.storages) <= 24
    assert {storage.space for storage in lowered.storages} == {RowSpace.TOKENS, RowSpace.OUTPUTS}
