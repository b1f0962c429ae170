"""Inverse frequencies of rotary embeddings, scaling rules applied (J. Su et al., "RoFormer", 2021)."""

from __future__ import annotations

import numpy as np

from ferrum.core.arrays import FloatArray
from ferrum.core.errors import MalformedCheckpoint
from ferrum.models.model_metadata import ModelMetadata


def rope_frequencies(num_values: int, base: float, linear_factor: float = 1.0) -> tuple[float, ...]:
    """``base^(-2i / num_values) / linear_factor`` for each pair i of the ``num_values`` values that turn.

    Linear scaling: S. Chen et al., "Extending context window of large language models via positional
    interpolation", 2023.
    """
    return tuple(base ** (-2.0 * pair / num_values) / linear_factor for pair in range(num_values // 2))


def with_factors(frequencies: tuple[float, ...], factors: FloatArray, path: str) -> tuple[float, ...]:
    """Each frequency divided by its factor; GGUF stores Llama 3's scaling so (``rope_freqs.weight``).

    Raises MalformedCheckpoint for a factor that is not a finite number above 0.
    """
    if not (np.isfinite(factors).all() and (factors > 0).all()):
        raise MalformedCheckpoint(path, "tensor 'rope_freqs.weight' holds a factor that is not above 0")
    return tuple(frequency / factor for frequency, factor in zip(frequencies, factors.tolist(), strict=True))


def linear_scaling_factor(metadata: ModelMetadata) -> float:
    """The factor of linear rope scaling, 1 where there is none.

    Raises UnsupportedModel for a scaling of another kind (yarn, longrope).
    """
    kind = metadata.text("rope.scaling.type", "linear")
    if kind == "none":
        return 1.0
    if kind != "linear":
        raise metadata.unsupported(f"rope scaling {kind!r} is not supported; there is: linear, llama3")
    # rope.scale_linear is the key's name in files from 2023.
    older = metadata.positive("rope.scale_linear", 1.0)
    return metadata.optional_positive("rope.scaling.factor") or older
