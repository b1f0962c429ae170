"""A tiny random Llama with a vocabulary and a chat template: everything a door needs, in half a megabyte."""

from pathlib import Path

import numpy as np

from ferrum.weights.tensor_types import TensorType
from tiny_models import CONTEXT, llama_metadata, random_tensor, write_tiny_llama
from tiny_vocabularies import byte_level_values

TEMPLATE = """{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def write_tiny_chat_model(path: Path, template: str | None = TEMPLATE, context_length: int = CONTEXT) -> Path:
    """``template`` None leaves the chat template out, as in a base model."""
    vocabulary = byte_level_values()
    if template is not None:
        vocabulary["tokenizer.chat_template"] = template
    width = llama_metadata()["llama.embedding_length"]
    num_tokens = len(vocabulary["tokenizer.ggml.tokens"])
    embedding = random_tensor(np.random.default_rng(1), TensorType.F32, (num_tokens, width), 0.2)
    return write_tiny_llama(
        path,
        metadata={**llama_metadata(context_length=context_length), **vocabulary},
        more_tensors={"token_embd.weight": embedding},
    )
