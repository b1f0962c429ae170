"""Ferrum: an LLM inference and serving engine for plain CPUs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ferrum.core.completion_boundary import AfterDelimiterAndPayload as AfterDelimiterAndPayload
    from ferrum.core.completion_boundary import Envelope as Envelope
    from ferrum.core.config import EngineConfig as EngineConfig
    from ferrum.core.errors import FerrumError as FerrumError
    from ferrum.core.request import InferenceResult as InferenceResult
    from ferrum.core.sampling_params import SamplingParams as SamplingParams
    from ferrum.llm import LLM as LLM

__version__ = "0.1.0"

__all__ = [
    "LLM",
    "AfterDelimiterAndPayload",
    "EngineConfig",
    "Envelope",
    "FerrumError",
    "InferenceResult",
    "SamplingParams",
    "__version__",
]

# Imported on first use: ``import ferrum`` and ``ferrum --help`` must not pay for numpy and the engine.
_HOMES = {
    "LLM": "ferrum.llm",
    "AfterDelimiterAndPayload": "ferrum.core.completion_boundary",
    "EngineConfig": "ferrum.core.config",
    "Envelope": "ferrum.core.completion_boundary",
    "FerrumError": "ferrum.core.errors",
    "InferenceResult": "ferrum.core.request",
    "SamplingParams": "ferrum.core.sampling_params",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'ferrum' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
