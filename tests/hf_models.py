"""Builds transformers' models on a checkpoint's dequantised weights. Needs the extra ``oracle``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import transformers

from ferrum.core.arrays import FloatArray
from ferrum.weights.checkpoint import Checkpoint
from hugging_face_weights import HuggingFaceLayout, gemma3_layout, llama_layout


def loaded(model: Any, layout: HuggingFaceLayout, checkpoint: Checkpoint) -> Any:
    state = {name: torch.from_numpy(values) for name, values in layout.weights_of(checkpoint)}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    return model.float().eval()


def hf_llama(checkpoint: Checkpoint, kind: str = "Llama", **changes: Any) -> Any:
    layout = llama_layout(checkpoint)
    rope = layout.config["rope_parameters"] | changes.pop("rope_parameters", {})
    options = {**layout.config, "attn_implementation": "eager", "rope_parameters": rope, **changes}
    config = getattr(transformers, f"{kind}Config")(**options)
    return loaded(getattr(transformers, f"{kind}ForCausalLM")(config), layout, checkpoint)


def hf_gemma3(checkpoint: Checkpoint, global_rope: dict[str, Any] | None = None, **changes: Any) -> Any:
    layout = gemma3_layout(checkpoint)
    rope = dict(layout.config["rope_parameters"])
    rope["full_attention"] = rope["full_attention"] | (global_rope or {})
    options = {**layout.config, "attn_implementation": "eager", "rope_parameters": rope, **changes}
    model = transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**options))
    return loaded(model, layout, checkpoint)


def hf_logits(model: Any, ids: list[int]) -> FloatArray:
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
    return np.asarray(logits.numpy(), np.float32)
