"""Which way a model is loaded, by the name of the executor that will run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ferrum.assembly.loaded_model import LoadedModel
from ferrum.assembly.model_loading import LoadOptions, load_model
from ferrum.core.errors import UnknownComponent
from ferrum.weights.progress_reporter import ProgressReporter

ModelLoader = Callable[[str, LoadOptions, ProgressReporter], LoadedModel]

PLAN_EXECUTOR = "llm"
TRANSFORMERS_EXECUTOR = "transformers"


def _load_hugging_face_model(argument: str, options: LoadOptions, reporter: ProgressReporter) -> LoadedModel:
    # The rare road is imported when it is taken.
    from ferrum.assembly.hugging_face_model import load_hugging_face_model

    return load_hugging_face_model(argument, options, reporter)


MODEL_LOADERS: Mapping[str, ModelLoader] = {
    PLAN_EXECUTOR: load_model,
    TRANSFORMERS_EXECUTOR: _load_hugging_face_model,
}


def find_loader(executor: str) -> ModelLoader:
    """The loader for an executor of Ferrum's own. Raises UnknownComponent, which lists them."""
    if executor not in MODEL_LOADERS:
        raise UnknownComponent("executor", executor, MODEL_LOADERS)
    return MODEL_LOADERS[executor]
