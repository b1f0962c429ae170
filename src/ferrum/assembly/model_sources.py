"""What a builder is told of its model: where it comes from, or that it is loaded already."""

from __future__ import annotations

from dataclasses import dataclass

from ferrum.assembly.loaded_model import LoadedModel
from ferrum.assembly.model_loading import LoadOptions
from ferrum.weights.progress_reporter import ProgressReporter
from ferrum.weights.source_bundle import SourceBundle


@dataclass(frozen=True, slots=True)
class ModelSources:
    """Where a model comes from and how it is to be loaded."""

    argument: str
    options: LoadOptions
    reporter: ProgressReporter


@dataclass(frozen=True, slots=True)
class DefinedModel:
    """A model that is loaded already, with the sources it came from. Tokenizer and executor share it."""

    sources: ModelSources
    model: LoadedModel

    @property
    def bundle(self) -> SourceBundle:
        """The files behind it: the same object for everybody."""
        return self.model.bundle
