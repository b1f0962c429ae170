"""Three ways to an engine in one call: from a configuration, from a model's sources, from a loaded model."""

from __future__ import annotations

from ferrum.assembly.engine_builder import EngineBuilder
from ferrum.assembly.model_sources import DefinedModel, ModelSources
from ferrum.core.config import EngineConfig
from ferrum.engine.engine import ContinuousBatchEngine


def create_engine(config: EngineConfig) -> ContinuousBatchEngine:
    """An engine of the default parts, without a model: it answers with stubs. Raises as ``build`` does."""
    return EngineBuilder(config).build()


def create_model_engine(sources: ModelSources) -> ContinuousBatchEngine:
    """An engine over the model that ``sources`` names, with its sizes. Raises as ``build`` does."""
    return EngineBuilder(sources.options.engine).with_model_sources(sources).build()


def create_defined_model_engine(defined: DefinedModel) -> ContinuousBatchEngine:
    """An engine over a model that is loaded already; closing it frees the model. Raises as ``build`` does."""
    return EngineBuilder(defined.sources.options.engine).with_defined_model(defined).build()
