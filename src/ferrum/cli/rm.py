"""``ferrum rm``: delete fetched models."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ferrum import environment
from ferrum.cli.list_models import format_bytes
from ferrum.core.errors import ModelNotFound
from ferrum.weights.model_origin import PathOrigin
from ferrum.weights.model_source import parse_model_argument
from ferrum.weights.model_store import ModelStore


def rm(
    models: Annotated[list[str], typer.Argument(metavar="MODELS", help="Names as shown by ferrum list.")],
) -> None:
    """Delete each of MODELS from the cache."""
    store = ModelStore(environment.model_directory())
    for argument in models:
        _remove(argument, store)


def _remove(argument: str, store: ModelStore) -> None:
    name = argument
    # A listed name need not be a model argument any more: a short name may have gone with an earlier version.
    if argument not in {model.name for model in store.list()}:
        reference = parse_model_argument(argument)
        if isinstance(reference.origin, PathOrigin):
            raise ModelNotFound(argument, "that is a file of your own; delete it yourself")
        name = reference.name
    removed = store.remove(name)
    print(f"removed {name} ({format_bytes(removed.num_bytes)})", file=sys.stderr)
    for path in removed.kept:
        print(f"kept {path}: that cache is shared with other programs", file=sys.stderr)
