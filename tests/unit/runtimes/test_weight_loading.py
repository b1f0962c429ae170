"""Weights come into the runtime in portions: every row once, and never the file in memory beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ferrum import _native
from ferrum.core.arrays import ByteArray
from ferrum.core.kv_dtype import KvDtype
from ferrum.models.architectures import build_plan
from ferrum.plan.lowering import lower
from ferrum.runtimes.native_assembly import assemble
from ferrum.runtimes.weight_loading import TILE_ROWS, WeightLoading
from ferrum.weights.checkpoint import open_checkpoint
from ferrum.weights.quantized_tensor import QuantizedTensor
from ferrum.weights.tensor_types import TensorType
from gguf_factory import write_gguf
from tiny_models import write_tiny_llama

KIND = TensorType.Q8_0
COLUMNS = 64
ROW_BYTES = KIND.row_bytes(COLUMNS)


class RecordingRuntime:
    """Stands for the native runtime; keeps the portions it is given."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, int, int]] = []
        self.portions: list[list[tuple[int, int, ByteArray]]] = []

    def add_weights(self, shapes: Sequence[tuple[int, int, int]]) -> int:
        self.shapes += shapes
        return len(self.shapes) - len(shapes)

    def pack_weights(self, portion: list[tuple[int, int, ByteArray]]) -> None:
        self.portions.append(list(portion))


def tensor(num_rows: int, seed: int) -> QuantizedTensor:
    raw = np.random.default_rng(seed).integers(0, 256, num_rows * ROW_BYTES, np.uint8)
    return QuantizedTensor(f"weight {seed}", KIND, (num_rows, COLUMNS), raw)


@pytest.mark.parametrize("portion_bytes", [1, 40 * ROW_BYTES, 1 << 20])
def test_every_row_comes_once_and_cuts_lie_on_tiles(portion_bytes: int) -> None:
    runtime = RecordingRuntime()
    loading = WeightLoading(runtime, portion_bytes)
    tensors = [tensor(rows, seed) for seed, rows in enumerate((1, 16, 37, 200, 5))]
    together = tensors[1:3]
    ids = [loading.add([tensors[0]]), loading.add(together), *(loading.add([each]) for each in tensors[3:])]
    assert [weight for each in ids for weight in each] == [0, 1, 2, 3, 4]
    loading.pack()
    came: dict[int, list[bytes]] = {}
    for portion in runtime.portions:
        most = max(portion_bytes, TILE_ROWS * ROW_BYTES)
        assert sum(data.size for _, _, data in portion) <= 2 * most
        for weight, first_row, data in portion:
            assert first_row % TILE_ROWS == 0
            assert first_row * ROW_BYTES == sum(map(len, came.get(weight, [])))
            came.setdefault(weight, []).append(data.tobytes())
    assert [b"".join(came[weight]) for weight in range(5)] == [each.data.tobytes() for each in tensors]


def test_file_and_packed_weights_are_never_both_in_memory(tmp_path: Path) -> None:
    """Both count as resident: a model may take the memory of its weights once, not twice."""
    num_rows = (48 << 20) // ROW_BYTES
    raw = bytes(num_rows * ROW_BYTES)
    path = write_gguf(
        tmp_path / "m.gguf", {"general.architecture": "llama"}, {"w": (KIND, raw, (num_rows, COLUMNS))}
    )
    del raw
    runtime = _native.Runtime("", 2, 1, 1, 1, 1)
    runtime.reserve_weights(_native.packed_bytes(KIND.ggml_id, num_rows, COLUMNS))
    most_file_bytes = 0

    class WatchedRuntime:
        add_weights = runtime.add_weights

        @staticmethod
        def pack_weights(portion: list[tuple[int, int, ByteArray]]) -> None:
            nonlocal most_file_bytes
            runtime.pack_weights(portion)
            most_file_bytes = max(most_file_bytes, _resident_file_bytes())

    with open_checkpoint(path) as checkpoint:
        loading = WeightLoading(WatchedRuntime(), 4 << 20)
        loading.add([checkpoint.tensors["w"]])
        before = _resident_file_bytes()
        loading.pack()
        assert most_file_bytes - before < 16 << 20
        assert _resident_file_bytes() - before < 1 << 20
    assert runtime.weight_bytes >= num_rows * ROW_BYTES


def test_rows_that_do_not_suit_the_weight_are_refused() -> None:
    runtime = _native.Runtime("", 1, 1, 1, 1, 1)
    runtime.reserve_weights(_native.packed_bytes(KIND.ggml_id, 40, COLUMNS))
    weight = runtime.add_weights([(KIND.ggml_id, 40, COLUMNS)])
    rows = np.zeros(16 * ROW_BYTES, np.uint8)
    with pytest.raises(ValueError, match="not added"):
        runtime.pack_weights([(weight + 1, 0, rows)])
    with pytest.raises(ValueError, match="whole rows"):
        runtime.pack_weights([(weight, 0, rows[1:])])
    for first_row, data in ((8, rows), (-16, rows), (32, rows), (48, rows), (0, rows[: 8 * ROW_BYTES])):
        with pytest.raises(ValueError, match="on tiles"):
            runtime.pack_weights([(weight, first_row, data)])
    with pytest.raises(ValueError, match="reserved"):
        runtime.add_weights([(KIND.ggml_id, 16, COLUMNS)])


@pytest.mark.parametrize("rows", [(32, 64), (16, 16), (48, 48)])
def test_weights_that_cannot_lie_by_turns_are_refused(rows: tuple[int, int]) -> None:
    runtime = _native.Runtime("", 1, 1, 1, 1, 1)
    runtime.reserve_weights(sum(_native.packed_bytes(KIND.ggml_id, each, COLUMNS) for each in rows))
    with pytest.raises(ValueError, match="even number of tiles"):
        runtime.add_weights([(KIND.ggml_id, each, COLUMNS) for each in rows])


def test_gate_and_up_of_a_layer_lie_by_turns_and_all_else_by_itself(tmp_path: Path) -> None:
    runtime = _native.Runtime("", 1, 8, 1, 1, 1024)
    together: list[int] = []

    class WatchedRuntime:
        @staticmethod
        def add_weights(shapes: Sequence[tuple[int, int, int]]) -> int:
            together.append(len(shapes))
            return runtime.add_weights(shapes)

        def __getattr__(self, name: str) -> Any:
            return getattr(runtime, name)

    with open_checkpoint(write_tiny_llama(tmp_path / "m.gguf", KIND)) as checkpoint:
        plan = build_plan(checkpoint, 1024)
        assemble(lower(plan), checkpoint.tensors, WatchedRuntime(), KvDtype.F16)
    num_layers = len(plan.kv_layers)
    # Words, then q, k, v, output and down of each layer.
    assert Counter(together) == {2: num_layers, 1: 1 + 5 * num_layers}


def _resident_file_bytes() -> int:
    """Of all mapped files, this process's share in memory."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if "RssFile" in line)
    return int(line.split()[1]) * 1024
