"""The script of the random model: a valid file in Q4_K_M's pattern, the same for the same seed."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from ferrum.models.architectures import build_plan
from ferrum.runtimes.native import NativeRuntime
from ferrum.runtimes.protocol import LogitsDetail, StepBatch
from ferrum.tokenization.gguf_tokenizer import tokenizer_from_gguf
from ferrum.weights.block_formats import dequantize
from ferrum.weights.checkpoint import open_checkpoint
from ferrum.weights.tensor_types import TensorType
from tiny_chat_model import write_tiny_chat_model

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "make-random-1b"


def load_script() -> ModuleType:
    loader = SourceFileLoader("make_random_1b", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script with a model that fits a test."""
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    script = load_script()
    for name, value in {
        "NUM_LAYERS": 8,
        "WIDTH": 256,
        "HIDDEN": 512,
        "NUM_HEADS": 4,
        "NUM_KV_HEADS": 2,
    }.items():
        monkeypatch.setattr(script, name, value)
    return script


def test_the_model_has_llamas_shape_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    script = load_script()
    tensors = script.tensors_of(49_152)
    assert sum(script.num_bytes(*one) for one in tensors.values()) == pytest.approx(668e6, rel=0.01)
    assert tensors["blk.15.ffn_gate.weight"] == (TensorType.Q4_K, (8192, 2048))
    assert tensors["token_embd.weight"] == (TensorType.Q6_K, (49_152, 2048))
    # Half of the layers keep attn_v and ffn_down in six bits.
    for name in ("attn_v", "ffn_down"):
        kinds = [tensors[f"blk.{layer}.{name}.weight"][0] for layer in range(16)]
        assert kinds.count(TensorType.Q6_K) == kinds.count(TensorType.Q4_K) == 8
        assert kinds[0] is kinds[1] is kinds[4] is kinds[15] is TensorType.Q6_K


def test_the_file_runs_and_its_values_are_sane(small: ModuleType, tmp_path: Path) -> None:
    tokenizer_file = write_tiny_chat_model(tmp_path / "tokenizer.gguf")
    model = tmp_path / "random.gguf"
    assert small.write_model(tokenizer_file, model, seed=1) == model.stat().st_size
    with open_checkpoint(model) as checkpoint, open_checkpoint(tokenizer_file) as source:
        values = dequantize(checkpoint.tensors["blk.0.ffn_down.weight"])
        assert values.std() == pytest.approx(512**-0.5, rel=0.1)
        assert abs(values.mean()) < 0.1 * values.std()
        own, theirs = (tokenizer_from_gguf(each.metadata, None) for each in (checkpoint, source))
        assert own.encode("hello") == theirs.encode("hello")
        plan = build_plan(checkpoint, 64)
        runtime = NativeRuntime(plan, checkpoint.tensors, num_blocks=2)
        ids = np.arange(20, dtype=np.int32)
        batch = StepBatch(
            ids, ids, np.array([0, 20], np.int32), np.zeros((1, 1), np.int32), np.array([19], np.int32), None
        )
        logits = runtime.run(batch, LogitsDetail.FULL).logits
        runtime.close()
    assert np.isfinite(logits).all()
    assert 0.1 < logits.std() < 10


def test_a_seed_gives_one_file(small: ModuleType, tmp_path: Path) -> None:
    tokenizer_file = write_tiny_chat_model(tmp_path / "tokenizer.gguf")
    files = [tmp_path / f"{index}.gguf" for index in range(3)]
    for file, seed in zip(files, (5, 5, 6), strict=True):
        small.write_model(tokenizer_file, file, seed)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].read_bytes() != files[2].read_bytes()


def test_bad_arguments_are_one_line(
    small: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert small.main([]) == 2
    assert "usage:" in capsys.readouterr().err
    assert small.main([str(tmp_path / "none.gguf"), str(tmp_path / "out.gguf")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("make-random-1b: error: ")
    assert error.count("\n") == 1
