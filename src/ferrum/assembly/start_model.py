"""A model argument to a running engine: what every door (run, serve, LLM) calls."""

from __future__ import annotations

from dataclasses import dataclass

from ferrum.assembly.engine_builder import DefinedModel, EngineBuilder, ModelSources
from ferrum.assembly.model_loading import LoadedModel, LoadOptions, load_model
from ferrum.engine.engine import ContinuousBatchEngine
from ferrum.weights.progress_reporter import ProgressReporter


@dataclass(frozen=True, slots=True)
class RunningModel:
    """``engine`` owns the model's runtime: closing it frees the model."""

    model: LoadedModel
    engine: ContinuousBatchEngine


def start_model(argument: str, options: LoadOptions, reporter: ProgressReporter) -> RunningModel:
    """Loads ``argument`` and builds an engine over it, ready to answer.

    Raises ModelError, InvalidConfig or ResourceExhausted.
    """
    model = load_model(argument, options, reporter)
    defined = DefinedModel(ModelSources(argument, options, reporter), model)
    return RunningModel(model, EngineBuilder(options.engine).with_defined_model(defined).build())
