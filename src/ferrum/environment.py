"""The only reader of environment variables; everything else receives an Environment or parts of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Environment:
    """What the environment says, one field a variable.

    home  FERRUM_HOME, the folder for models and caches; default ~/.cache/ferrum
    """

    home: Path


def read_environment() -> Environment:
    """Read all variables now; an empty one counts as unset."""
    home = os.environ.get("FERRUM_HOME", "")
    return Environment(home=Path(home).expanduser() if home else Path.home() / ".cache" / "ferrum")


def model_directory() -> Path:
    """The folder in which downloaded models live."""
    return read_environment().home / "models"


def cache_directory() -> Path:
    """The folder for what can be computed again: weight digests, built tokenizers."""
    return read_environment().home / "cache"
