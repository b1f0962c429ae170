"""A model argument to a running engine: what every door (run, serve, LLM) calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ferrum.assembly.engine_builder import EngineBuilder
from ferrum.assembly.loaded_model import LoadedModel
from ferrum.assembly.model_loaders import PLAN_EXECUTOR, find_loader
from ferrum.assembly.model_loading import LoadOptions
from ferrum.assembly.model_sources import DefinedModel, ModelSources
from ferrum.core.collector_pause import collector_paused
from ferrum.core.events import Observer
from ferrum.engine.engine import ContinuousBatchEngine
from ferrum.weights.progress_reporter import ProgressReporter


@dataclass(frozen=True, slots=True)
class RunningModel:
    """``engine`` owns the model's runtime: closing it frees the model."""

    model: LoadedModel
    engine: ContinuousBatchEngine


def start_model(
    argument: str,
    options: LoadOptions,
    reporter: ProgressReporter,
    executor: str = PLAN_EXECUTOR,
    observers: Sequence[Observer] = (),
) -> RunningModel:
    """Loads ``argument`` for the kind of ``executor`` and builds an engine over it, ready to answer.

    Raises UnknownComponent for an executor that runs no models, ModelError, InvalidConfig or
    ResourceExhausted.
    """
    with collector_paused():
        model = find_loader(executor)(argument, options, reporter)
        defined = DefinedModel(ModelSources(argument, options, reporter), model)
        builder = EngineBuilder(options.engine).with_defined_model(defined).with_name("executor", executor)
        for observer in observers:
            builder.with_observer(observer)
        return RunningModel(model, builder.build())
