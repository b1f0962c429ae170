"""The interpreter's float logits against transformers' in float32, on the same dequantised weights.

Run with the extra ``oracle``: ``pytest -m oracle tests/integration/test_interpreter_oracle.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ferrum.core.arrays import FloatArray
from ferrum.models.architectures import build_plan
from ferrum.plan.model_plan import ModelPlan
from ferrum.runtimes.numpy_interpreter import NumpyInterpreter
from ferrum.runtimes.protocol import LogitsDetail, StepBatch
from ferrum.tokenization.gguf_tokenizer import tokenizer_from_gguf
from ferrum.weights.checkpoint import Checkpoint, open_checkpoint
from ferrum.weights.tensor_types import TensorType
from tiny_models import (
    VOCABULARY,
    float_tensor,
    gemma3_metadata,
    llama_metadata,
    write_tiny_gemma3,
    write_tiny_llama,
)

pytestmark = pytest.mark.oracle
pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
hf_models = pytest.importorskip("hf_models")

# Of the logits' standard deviation.
TOLERANCE = 1e-3


def our_logits(plan: ModelPlan, checkpoint: Checkpoint, ids: list[int]) -> FloatArray:
    num_blocks = -(-len(ids) // 32)
    interpreter = NumpyInterpreter(plan, checkpoint.tensors, num_blocks)
    rows = np.arange(len(ids), dtype=np.int32)
    batch = StepBatch(
        token_ids=np.array(ids, np.int32),
        positions=rows,
        sequence_starts=np.array([0, len(ids)], np.int32),
        block_tables=np.arange(num_blocks, dtype=np.int32)[None],
        output_rows=rows,
        sampling=None,
    )
    return interpreter.run(batch, LogitsDetail.FULL).logits


def assert_same_logits(checkpoint: Checkpoint, model: Any, ids: list[int]) -> None:
    ours, theirs = our_logits(build_plan(checkpoint), checkpoint, ids), hf_models.hf_logits(model, ids)
    difference = np.abs(ours - theirs).max() / theirs.std()
    print(f"{checkpoint.path.name}: {len(ids)} tokens, largest difference {difference:.1e} of the deviation")
    assert difference <= TOLERANCE


def some_ids(num_tokens: int, vocabulary: int = VOCABULARY) -> list[int]:
    return np.random.default_rng(0).integers(0, vocabulary, num_tokens).tolist()


def llama3_factors(head_width: int, rope: dict[str, Any]) -> FloatArray:
    """Llama 3's scaling as GGUF's factors, plain frequency / scaled frequency, by transformers' own rule."""
    options = {"hidden_size": head_width, "num_attention_heads": 1, "head_dim": head_width}
    config = transformers.LlamaConfig(**options, rope_parameters=rope, max_position_embeddings=2048)
    scaled, _ = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = rope["rope_theta"] ** (-2 * np.arange(head_width // 2) / head_width)
    return (plain / scaled.numpy()).astype(np.float32)


def test_tiny_llama(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_tiny_llama(tmp_path / "m.gguf"))
    assert_same_logits(checkpoint, hf_models.hf_llama(checkpoint), some_ids(150))


def test_tiny_llama_with_biases_and_an_output_matrix(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_tiny_llama(tmp_path / "m.gguf", has_biases=True, has_output=True))
    assert_same_logits(checkpoint, hf_models.hf_llama(checkpoint, attention_bias=True), some_ids(80))


def test_tiny_llama_with_wide_heads(tmp_path: Path) -> None:
    metadata = llama_metadata(attention__key_length=32, attention__value_length=32)
    checkpoint = open_checkpoint(write_tiny_llama(tmp_path / "m.gguf", metadata=metadata))
    assert_same_logits(checkpoint, hf_models.hf_llama(checkpoint), some_ids(80))


def test_tiny_llama_with_linear_rope_scaling(tmp_path: Path) -> None:
    metadata = llama_metadata(rope__scaling__type="linear", rope__scaling__factor=4.0)
    checkpoint = open_checkpoint(write_tiny_llama(tmp_path / "m.gguf", metadata=metadata))
    model = hf_models.hf_llama(checkpoint, rope_parameters={"rope_type": "linear", "factor": 4.0})
    assert_same_logits(checkpoint, model, some_ids(150))


def test_tiny_llama_with_llama3_rope_scaling(tmp_path: Path) -> None:
    rope = {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    factors = llama3_factors(16, rope)
    assert len(set(factors.tolist())) > 3  # high, middle and low frequencies all occur
    more = {"rope_freqs.weight": float_tensor(TensorType.F32, factors)}
    checkpoint = open_checkpoint(write_tiny_llama(tmp_path / "m.gguf", more_tensors=more))
    assert_same_logits(checkpoint, hf_models.hf_llama(checkpoint, rope_parameters=rope), some_ids(150))


def test_tiny_mistral_with_a_sliding_window(tmp_path: Path) -> None:
    metadata = llama_metadata(attention__sliding_window=24)
    checkpoint = open_checkpoint(write_tiny_llama(tmp_path / "m.gguf", metadata=metadata))
    model = hf_models.hf_llama(checkpoint, "Mistral", sliding_window=24)
    assert_same_logits(checkpoint, model, some_ids(150))


@pytest.mark.parametrize("kind", [TensorType.Q4_1, TensorType.Q5_0, TensorType.Q8_0, TensorType.BF16])
def test_tiny_llama_of_stored_types(tmp_path: Path, kind: TensorType) -> None:
    checkpoint = open_checkpoint(write_tiny_llama(tmp_path / "m.gguf", kind))
    assert_same_logits(checkpoint, hf_models.hf_llama(checkpoint), some_ids(40))


def test_tiny_gemma3(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_tiny_gemma3(tmp_path / "m.gguf"))
    assert_same_logits(checkpoint, hf_models.hf_gemma3(checkpoint), some_ids(150))


def test_tiny_gemma3_with_scaled_global_rope_and_capped_logits(tmp_path: Path) -> None:
    metadata = gemma3_metadata(
        rope__scaling__type="linear",
        rope__scaling__factor=8.0,
        final_logit_softcapping=3.0,
    )
    checkpoint = open_checkpoint(write_tiny_gemma3(tmp_path / "m.gguf", metadata=metadata))
    # transformers' Gemma 3 ignores attn_logit_softcapping; attention's own tests cover it.
    model = hf_models.hf_gemma3(
        checkpoint, {"rope_type": "linear", "factor": 8.0}, final_logit_softcapping=3.0
    )
    assert_same_logits(checkpoint, model, some_ids(150))


def test_gemma3_27b_scales_scores_by_width_over_heads(tmp_path: Path) -> None:
    metadata = gemma3_metadata(block_count=62, embedding_length=32, feed_forward_length=32)
    checkpoint = open_checkpoint(write_tiny_gemma3(tmp_path / "m.gguf", metadata=metadata))
    # Width / heads; the head width is 32.
    model = hf_models.hf_gemma3(checkpoint, query_pre_attn_scalar=16)
    assert_same_logits(checkpoint, model, some_ids(20))


@pytest.mark.models
def test_smollm2_logits_equal_transformers(smollm2_path: Path) -> None:
    checkpoint = open_checkpoint(smollm2_path)
    assert_same_logits(checkpoint, hf_models.hf_llama(checkpoint), english_ids(smollm2_path, 200))


@pytest.mark.models
def test_gemma3_logits_equal_transformers_beyond_its_window(gemma3_path: Path) -> None:
    checkpoint = open_checkpoint(gemma3_path)
    model = hf_models.hf_gemma3(checkpoint)
    assert_same_logits(checkpoint, model, english_ids(gemma3_path, 200))
    assert_same_logits(checkpoint, model, english_ids(gemma3_path, 700))


def english_ids(model_path: Path, num_tokens: int) -> list[int]:
    """The beginning of this project's licence in the model's own tokens."""
    checkpoint = open_checkpoint(model_path)
    text = (Path(__file__).parents[2] / "LICENSE").read_text()
    return tokenizer_from_gguf(checkpoint.metadata, None).encode_prompt(text)[:num_tokens]
