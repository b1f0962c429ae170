"""The table of architectures, and every way metadata can be wrong: one line that names the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ferrum.core.errors import FerrumError, InvalidConfig, MalformedCheckpoint, UnsupportedModel
from ferrum.models.architectures import build_plan
from ferrum.weights.checkpoint import open_checkpoint
from ferrum.weights.tensor_types import TensorType
from gguf_factory import write_gguf
from tiny_models import (
    CONTEXT,
    float_tensor,
    gemma3_metadata,
    llama_metadata,
    write_tiny_gemma3,
    write_tiny_llama,
)


def refusal(path: Path) -> FerrumError:
    with pytest.raises(FerrumError) as caught:
        build_plan(open_checkpoint(path))
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)
    return caught.value


def llama_with(tmp_path: Path, **changes: Any) -> Path:
    """A sound tiny Llama's tensors under metadata that was changed after the fact."""
    return rewritten(tmp_path, write_tiny_llama(tmp_path / "sound.gguf"), llama_metadata(**changes))


def gemma3_with(tmp_path: Path, **changes: Any) -> Path:
    return rewritten(tmp_path, write_tiny_gemma3(tmp_path / "sound.gguf"), gemma3_metadata(**changes))


def rewritten(tmp_path: Path, sound: Path, metadata: dict[str, Any]) -> Path:
    tensors = {
        name: (tensor.type, np.array(tensor.data), tensor.shape)
        for name, tensor in open_checkpoint(sound).tensors.items()
    }
    return write_gguf(tmp_path / "changed.gguf", metadata, tensors)


def test_an_unknown_architecture_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    path = rewritten(tmp_path, write_tiny_llama(tmp_path / "sound.gguf"), {"general.architecture": "mamba9"})
    error = refusal(path)
    assert isinstance(error, UnsupportedModel)
    assert "architecture 'mamba9' is not supported; there are: gemma3, llama" in str(error)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"block_count": 0}, "'llama.block_count' must be between 1"),
        ({"block_count": -3}, "'llama.block_count' must be between 1"),
        ({"block_count": 3}, "tensor 'blk.2.attn_norm.weight' is missing"),
        ({"block_count": 1 << 23}, "tensor 'blk.2.attn_norm.weight' is missing"),
        ({"block_count": 1 << 40}, "'llama.block_count' must be between 1"),
        ({"block_count": None}, "'llama.block_count' is missing"),
        ({"block_count": "two"}, "'llama.block_count' must be an integer"),
        ({"context_length": None}, "'llama.context_length' is missing"),
        ({"context_length": 0}, "'llama.context_length' must be between 1"),
        ({"embedding_length": 0}, "'llama.embedding_length' must be between 1"),
        ({"embedding_length": 128}, "tensor 'token_embd.weight' has shape 96x64"),
        ({"feed_forward_length": 100}, "tensor 'blk.0.ffn_gate.weight' has shape 96x64"),
        ({"attention__head_count": 0}, "'llama.attention.head_count' must be between 1"),
        ({"attention__head_count_kv": 0}, "'llama.attention.head_count_kv' must be between 1"),
        ({"attention__head_count_kv": 3}, "'llama.attention.head_count_kv' must divide 4"),
        ({"attention__head_count_kv": 4}, "tensor 'blk.0.attn_k.weight' has shape 32x64"),
        ({"attention__key_length": 1 << 30}, "'llama.attention.key_length' must be between 1"),
        ({"attention__layer_norm_rms_epsilon": None}, "rms_epsilon' is missing"),
        ({"attention__layer_norm_rms_epsilon": 0.0}, "rms_epsilon' must be a finite number above 0"),
        ({"attention__layer_norm_rms_epsilon": float("nan")}, "rms_epsilon' must be a finite number above 0"),
        ({"rope__freq_base": -1.0}, "'llama.rope.freq_base' must be a finite number above 0"),
        ({"rope__freq_base": float("inf")}, "'llama.rope.freq_base' must be a finite number above 0"),
        ({"rope__dimension_count": 17}, "'llama.rope.dimension_count' must be between 1 and 16"),
        ({"rope__dimension_count": 15}, "'llama.rope.dimension_count' must be even"),
        ({"rope__scaling__factor": -2.0}, "'llama.rope.scaling.factor' must be a finite number above 0"),
    ],
)
def test_bad_llama_metadata_is_named(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    error = refusal(llama_with(tmp_path, **changes))
    assert isinstance(error, MalformedCheckpoint)
    assert words in str(error)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"expert_count": 8}, "mixture of experts"),
        ({"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}, "rope scaling 'yarn'"),
        ({"attention__value_length": 8}, "value heads of 8"),
        ({"attention__head_count": np.array([4, 2], np.int32)}, "differs between layers"),
    ],
)
def test_what_this_build_cannot_run_is_said(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    error = refusal(llama_with(tmp_path, **changes))
    assert isinstance(error, UnsupportedModel)
    assert words in str(error)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"block_count": 0}, "'gemma3.block_count' must be between 1"),
        ({"attention__head_count": 0}, "'gemma3.attention.head_count' must be between 1"),
        ({"attention__sliding_window": -1}, "'gemma3.attention.sliding_window' must be between 1"),
        ({"attention__sliding_window_pattern": 0}, "sliding_window_pattern' must be between 1"),
        ({"attention__key_length": 33, "attention__value_length": 33}, "key_length' must be even"),
        ({"attn_logit_softcapping": -5.0}, "attn_logit_softcapping' must be a finite number above 0"),
    ],
)
def test_bad_gemma3_metadata_is_named(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    error = refusal(gemma3_with(tmp_path, **changes))
    assert isinstance(error, MalformedCheckpoint)
    assert words in str(error)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_rope_factors_are_refused(tmp_path: Path, value: float) -> None:
    more = {"rope_freqs.weight": float_tensor(TensorType.F32, np.full(8, value))}
    assert "rope_freqs.weight" in str(refusal(write_tiny_llama(tmp_path / "m.gguf", more_tensors=more)))


def test_rope_factors_of_the_wrong_length_are_refused(tmp_path: Path) -> None:
    more = {"rope_freqs.weight": float_tensor(TensorType.F32, np.ones(7))}
    error = refusal(write_tiny_llama(tmp_path / "m.gguf", more_tensors=more))
    assert "'rope_freqs.weight' has shape 7" in str(error)


def test_head_counts_that_are_equal_in_all_layers_are_one_count(tmp_path: Path) -> None:
    changes = {"attention__head_count_kv": np.array([2, 2], np.int32)}
    same = build_plan(open_checkpoint(llama_with(tmp_path, **changes)))
    assert same.hash() == build_plan(open_checkpoint(tmp_path / "sound.gguf")).hash()


def test_the_context_is_the_models_own_unless_asked_for_less(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_tiny_llama(tmp_path / "m.gguf"))
    assert build_plan(checkpoint).context_length == CONTEXT
    assert build_plan(checkpoint, 100).context_length == 100
    for wrong in (0, -1, CONTEXT + 1):
        with pytest.raises(InvalidConfig, match=f"between 1 and the model's own {CONTEXT}, not {wrong}"):
            build_plan(checkpoint, wrong)
