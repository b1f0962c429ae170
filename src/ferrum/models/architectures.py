"""The table of architectures: which function writes which model's plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ferrum.core.errors import InvalidConfig, UnsupportedModel
from ferrum.models.gemma3 import build_gemma3
from ferrum.models.llama import build_llama
from ferrum.models.model_metadata import ModelMetadata
from ferrum.plan.model_plan import ModelPlan
from ferrum.weights.checkpoint import Checkpoint

ARCHITECTURES: Mapping[str, Callable[[Checkpoint, int], ModelPlan]] = MappingProxyType(
    {"llama": build_llama, "gemma3": build_gemma3}
)

# Positions are int32 in every runtime.
_MOST_CONTEXT = 2**31 - 1


def build_plan(checkpoint: Checkpoint, context_length: int | None = None) -> ModelPlan:
    """The authored plan of the checkpoint's model; ``context_length`` None takes the model's own.

    Raises UnsupportedModel for an architecture that is not in the table or a feature that is not supported,
    MalformedCheckpoint for metadata or tensors that do not fit each other, and InvalidConfig for a context
    length the model was not made for.
    """
    build = ARCHITECTURES.get(checkpoint.architecture)
    if build is None:
        raise UnsupportedModel(
            str(checkpoint.path),
            f"architecture {checkpoint.architecture!r} is not supported; there are: "
            f"{', '.join(sorted(ARCHITECTURES))}",
        )
    longest = ModelMetadata(checkpoint).count("context_length", most=_MOST_CONTEXT)
    if context_length is None:
        context_length = longest
    if not 1 <= context_length <= longest:
        raise InvalidConfig(
            "context_length", f"must be between 1 and the model's own {longest}, not {context_length}"
        )
    return build(checkpoint, context_length)
