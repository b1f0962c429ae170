"""The interpreter's float logits against transformers' in float32, on the same dequantised weights.

Run with the extra ``oracle``: ``pytest -m oracle tests/integration/test_interpreter_oracle.py``.
"""

from __future__ import annotations

from collections.abc import Callable
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
from ferrum.weights.block_formats import dequantize
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
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# Of the logits' standard deviation.
TOLERANCE = 1e-3

SHARED_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
LLAMA_NAMES = SHARED_NAMES | {"ffn_norm": "post_attention_layernorm"}
GEMMA3_NAMES = SHARED_NAMES | {
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def unpermuted(values: FloatArray, num_heads: int) -> FloatArray:
    """Undoes what GGUF does to q and k rows: neighbours (2i, 2i + 1) go back to (i, i + half a head)."""
    heads = values.reshape(num_heads, -1, 2, *values.shape[1:])
    return np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(values.shape)


def state_of(
    checkpoint: Checkpoint, names: dict[str, str], convert: Callable[[str, FloatArray], FloatArray]
) -> dict[str, Any]:
    """The checkpoint's values under transformers' names."""
    state = {}
    for name, tensor in checkpoint.tensors.items():
        *block, short, kind = name.split(".")
        if short == "rope_freqs":
            continue
        prefix = f"model.layers.{block[1]}." if block else ""
        values = convert(short, np.array(dequantize(tensor)))
        state[f"{prefix}{names[short]}.{kind}"] = torch.from_numpy(values)
    return state


def loaded(model: Any, state: dict[str, Any]) -> Any:
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    return model.float().eval()


def hf_llama(checkpoint: Checkpoint, kind: str = "Llama", **changes: Any) -> Any:
    metadata = checkpoint.metadata
    heads = metadata.get_int("llama.attention.head_count")
    kv_heads = metadata.get_int("llama.attention.head_count_kv")
    width = metadata.get_int("llama.embedding_length")
    rope = {"rope_type": "default", "rope_theta": metadata.get_float("llama.rope.freq_base")}
    options = {
        "vocab_size": checkpoint.tensors["token_embd.weight"].shape[0],
        "hidden_size": width,
        "intermediate_size": metadata.get_int("llama.feed_forward_length"),
        "num_hidden_layers": metadata.get_int("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": metadata.get_int("llama.attention.key_length", width // heads),
        "rms_norm_eps": metadata.get_float("llama.attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": metadata.get_int("llama.context_length"),
        "tie_word_embeddings": "output.weight" not in checkpoint.tensors,
        "attn_implementation": "eager",
    }
    options |= {"rope_parameters": rope | changes.pop("rope_parameters", {})} | changes
    config = getattr(transformers, f"{kind}Config")(**options)

    def convert(short: str, values: FloatArray) -> FloatArray:
        counts = {"attn_q": heads, "attn_k": kv_heads}
        return unpermuted(values, counts[short]) if short in counts else values

    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    return loaded(model, state_of(checkpoint, LLAMA_NAMES, convert))


def hf_gemma3(checkpoint: Checkpoint, global_rope: dict[str, Any] | None = None, **changes: Any) -> Any:
    metadata = checkpoint.metadata
    layers = metadata.get_int("gemma3.block_count")
    head_width = metadata.get_int("gemma3.attention.key_length")
    base = metadata.get_float("gemma3.rope.freq_base")
    options = {
        "vocab_size": checkpoint.tensors["token_embd.weight"].shape[0],
        "hidden_size": metadata.get_int("gemma3.embedding_length"),
        "intermediate_size": metadata.get_int("gemma3.feed_forward_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": metadata.get_int("gemma3.attention.head_count"),
        "num_key_value_heads": metadata.get_int("gemma3.attention.head_count_kv"),
        "head_dim": head_width,
        "query_pre_attn_scalar": head_width,
        "rms_norm_eps": metadata.get_float("gemma3.attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": metadata.get_int("gemma3.context_length"),
        "sliding_window": metadata.get_int("gemma3.attention.sliding_window"),
        "layer_types": ["full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in range(layers)],
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": base} | (global_rope or {}),
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
        "attn_implementation": "eager",
    }
    model = transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**(options | changes)))

    def convert(short: str, values: FloatArray) -> FloatArray:
        return values - np.float32(1) if short.endswith("norm") else values

    return loaded(model, state_of(checkpoint, GEMMA3_NAMES, convert))


def hf_logits(model: Any, ids: list[int]) -> FloatArray:
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
    return np.asarray(logits.numpy(), np.float32)


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
    ours, theirs = our_logits(build_plan(checkpoint), checkpoint, ids), hf_logits(model, ids)
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
    assert_same_logits(checkpoint, hf_llama(checkpoint), some_ids(150))


def test_tiny_llama_with_biases_and_an_output_matrix(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_tiny_llama(tmp_path / "m.gguf", has_biases=True, has_output=True))
    assert_same_logits(checkpoint, hf_llama(checkpoint, attention_bias=True), some_ids(80))


def test_tiny_llama_with_wide_heads(tmp_path: Path) -> None:
    metadata = llama_metadata(attention__key_length=32, attention__value_length=32)
    checkpoint = open_checkpoint(write_tiny_llama(tmp_path / "m.gguf", metadata=metadata))
    assert_same_logits(checkpoint, hf_llama(checkpoint), some_ids(80))


def test_tiny_llama_with_linear_rope_scaling(tmp_path: Path) -> None:
    metadata = llama_metadata(rope__scaling__type="linear", rope__scaling__factor=4.0)
    checkpoint = open_checkpoint(write_tiny_llama(tmp_path / "m.gguf", metadata=metadata))
    model = hf_llama(checkpoint, rope_parameters={"rope_type": "linear", "factor": 4.0})
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
    assert_same_logits(checkpoint, hf_llama(checkpoint, rope_parameters=rope), some_ids(150))


def test_tiny_mistral_with_a_sliding_window(tmp_path: Path) -> None:
    metadata = llama_metadata(attention__sliding_window=24)
    checkpoint = open_checkpoint(write_tiny_llama(tmp_path / "m.gguf", metadata=metadata))
    model = hf_llama(checkpoint, "Mistral", sliding_window=24)
    assert_same_logits(checkpoint, model, some_ids(150))


@pytest.mark.parametrize("kind", [TensorType.Q4_1, TensorType.Q5_0, TensorType.Q8_0, TensorType.BF16])
def test_tiny_llama_of_stored_types(tmp_path: Path, kind: TensorType) -> None:
    checkpoint = open_checkpoint(write_tiny_llama(tmp_path / "m.gguf", kind))
    assert_same_logits(checkpoint, hf_llama(checkpoint), some_ids(40))


def test_tiny_gemma3(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_tiny_gemma3(tmp_path / "m.gguf"))
    assert_same_logits(checkpoint, hf_gemma3(checkpoint), some_ids(150))


def test_tiny_gemma3_with_scaled_global_rope_and_capped_logits(tmp_path: Path) -> None:
    metadata = gemma3_metadata(
        rope__scaling__type="linear",
        rope__scaling__factor=8.0,
        final_logit_softcapping=3.0,
    )
    checkpoint = open_checkpoint(write_tiny_gemma3(tmp_path / "m.gguf", metadata=metadata))
    # transformers' Gemma 3 ignores attn_logit_softcapping; attention's own tests cover it.
    model = hf_gemma3(checkpoint, {"rope_type": "linear", "factor": 8.0}, final_logit_softcapping=3.0)
    assert_same_logits(checkpoint, model, some_ids(150))


def test_gemma3_27b_scales_scores_by_width_over_heads(tmp_path: Path) -> None:
    metadata = gemma3_metadata(block_count=62, embedding_length=32, feed_forward_length=32)
    checkpoint = open_checkpoint(write_tiny_gemma3(tmp_path / "m.gguf", metadata=metadata))
    # Width / heads; the head width is 32.
    model = hf_gemma3(checkpoint, query_pre_attn_scalar=16)
    assert_same_logits(checkpoint, model, some_ids(20))


@pytest.mark.models
def test_smollm2_logits_equal_transformers(smollm2_path: Path) -> None:
    checkpoint = open_checkpoint(smollm2_path)
    assert_same_logits(checkpoint, hf_llama(checkpoint), english_ids(smollm2_path, 200))


@pytest.mark.models
def test_gemma3_logits_equal_transformers_beyond_its_window(gemma3_path: Path) -> None:
    checkpoint = open_checkpoint(gemma3_path)
    model = hf_gemma3(checkpoint)
    assert_same_logits(checkpoint, model, english_ids(gemma3_path, 200))
    assert_same_logits(checkpoint, model, english_ids(gemma3_path, 700))


def english_ids(model_path: Path, num_tokens: int) -> list[int]:
    """The beginning of this project's licence in the model's own tokens."""
    checkpoint = open_checkpoint(model_path)
    text = (Path(__file__).parents[2] / "LICENSE").read_text()
    return tokenizer_from_gguf(checkpoint.metadata, None).encode_prompt(text)[:num_tokens]
