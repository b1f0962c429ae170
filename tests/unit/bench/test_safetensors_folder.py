"""The script that writes a GGUF file's model as safetensors: other engines read what the file says."""

from __future__ import annotations

import importlib.util
import json
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import tokenizers

from ferrum.weights.block_formats import dequantize
from ferrum.weights.checkpoint import open_checkpoint
from ferrum.weights.tensor_types import TensorType
from tiny_models import VOCABULARY, llama_metadata, write_tiny_gemma3, write_tiny_llama

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "make-safetensors-folder"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    loader = SourceFileLoader("make_safetensors_folder", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """Format: the safetensors specification."""
    raw = path.read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:begin])
    assert header.pop("__metadata__") == {"format": "pt"}
    weights, expected = {}, 0
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        assert (entry["dtype"], start) == ("F32", expected)
        weights[name] = np.frombuffer(raw[begin + start : begin + end], "<f4").reshape(entry["shape"])
        expected = end
    assert begin % 8 == 0
    assert begin + expected == len(raw)
    return weights


def test_a_llama_keeps_its_values_under_other_names(script: ModuleType, tmp_path: Path) -> None:
    model = write_tiny_llama(tmp_path / "m.gguf", TensorType.Q4_1, has_output=True)
    assert script.main([str(model), str(tmp_path / "folder")]) == 0
    weights = read_weights(tmp_path / "folder" / "model.safetensors")
    with open_checkpoint(model) as checkpoint:
        assert len(weights) == len(checkpoint.tensors)
        down = dequantize(checkpoint.tensors["blk.1.ffn_down.weight"])
        query = dequantize(checkpoint.tensors["blk.0.attn_q.weight"])
        assert np.array_equal(weights["model.layers.1.mlp.down_proj.weight"], down)
    # Rows 0 and 1 of a head of GGUF are turned together; here those are row 0 and the one half a head later.
    ours = weights["model.layers.0.self_attn.q_proj.weight"]
    assert np.array_equal(ours[[0, 8, 1, 9]], query[:4])
    config = json.loads((tmp_path / "folder" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]) == (4, 2, 16)
    assert not config["tie_word_embeddings"]


def test_gemmas_norms_lose_the_one_that_gguf_added(script: ModuleType, tmp_path: Path) -> None:
    model = write_tiny_gemma3(tmp_path / "m.gguf")
    assert script.main([str(model), str(tmp_path / "folder")]) == 0
    weights = read_weights(tmp_path / "folder" / "model.safetensors")
    with open_checkpoint(model) as checkpoint:
        norm = dequantize(checkpoint.tensors["output_norm.weight"])
    assert np.array_equal(weights["model.norm.weight"], norm - np.float32(1))


def test_every_id_is_a_word_of_its_own(script: ModuleType, tmp_path: Path) -> None:
    model = write_tiny_llama(tmp_path / "m.gguf")
    script.main([str(model), str(tmp_path / "folder")])
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "folder" / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == VOCABULARY
    ids = [0, VOCABULARY - 1, 7]
    assert tokenizer.encode(tokenizer.decode(ids)).ids == ids


def test_what_cannot_be_written_is_one_line(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main([]) == 2
    assert "usage:" in capsys.readouterr().err
    other = llama_metadata() | {"general.architecture": "mamba"}
    model = write_tiny_llama(tmp_path / "m.gguf", metadata=other)
    for argument in (tmp_path / "none.gguf", model):
        assert script.main([str(argument), str(tmp_path / "folder")]) == 1
        error = capsys.readouterr().err
        assert error.startswith("make-safetensors-folder: error: ")
        assert error.count("\n") == 1
    assert "no architecture named 'mamba'" in error
