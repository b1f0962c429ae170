"""The only file that touches environment variables; others receive an Environment or parts of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ferrum.core.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class Environment:
    """What the environment says, one field a variable.

    home       FERRUM_HOME, the folder for models and caches; default ~/.cache/ferrum
    admin_key  FERRUM_ADMIN_KEY, for the server's /admin routes; None = none
    """

    home: Path
    admin_key: str | None = field(default=None, repr=False)


def read_environment() -> Environment:
    """Read all variables now; an empty one counts as unset. Raises InvalidConfig without a home folder."""
    home = os.environ.get("FERRUM_HOME", "")
    try:
        return Environment(
            home=Path(home or "~/.cache/ferrum").expanduser(),
            admin_key=os.environ.get("FERRUM_ADMIN_KEY") or None,
        )
    except RuntimeError as error:
        raise InvalidConfig("FERRUM_HOME", f"{error}; set it to a folder, written in full") from None


def keep_libraries_to_one_thread() -> None:
    """Before numpy is imported: its linear algebra is not used, and its threads would spin beside ours. Texts
    are encoded one at a time, so the tokenizers' threads would have nothing to do.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def model_directory() -> Path:
    """The folder in which downloaded models live."""
    return read_environment().home / "models"


def cache_directory() -> Path:
    """The folder for what can be computed again: weight digests, built tokenizers."""
    return read_environment().home / "cache"


def child_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Our own environment with ``variables`` set, for a process that takes settings in no other way."""
    return {**os.environ, **variables}
