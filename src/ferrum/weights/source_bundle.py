"""SourceBundle: the files a model was made of, each in its role and with its fingerprint.

A GGUF checkpoint is everything in one; a Hugging Face folder has files for the architecture, for the
tokenizer and for the weights. Knows names, sizes and digests, not what is in the files.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np

from ferrum.core.errors import MalformedCheckpoint, ModelNotFound
from ferrum.weights.checkpoint import Checkpoint
from ferrum.weights.file_digest import FileFingerprint, cached_digest, content_digest

CONFIG_FILE = "config.json"
TOKENIZER_FILE = "tokenizer.json"
OPTIONAL_FILES = (
    "tokenizer_config.json",
    "generation_config.json",
    "chat_template.json",
    "chat_template.jinja",
)
WEIGHTS_ENDING = ".safetensors"


class SourceRole(StrEnum):
    """What a file is read for. A GGUF file is read for all of it and counts as weights."""

    SEMANTICS = "semantics"
    TOKENIZER = "tokenizer"
    WEIGHTS = "weights"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was when the model was loaded. ``digest`` as in ``file_digest.content_digest``."""

    role: SourceRole
    path: Path
    num_bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class SourceBundle:
    """Immutable; tokenizer, start-up policy and executor of one model share the same object.

    ``root`` is the folder the files lie in.
    """

    root: Path
    files: tuple[SourceFile, ...]

    def of_role(self, role: SourceRole) -> tuple[SourceFile, ...]:
        return tuple(file for file in self.files if file.role is role)

    @property
    def weight_bytes(self) -> int:
        return sum(file.num_bytes for file in self.of_role(SourceRole.WEIGHTS))

    @property
    def fingerprint(self) -> str:
        """64 hex digits over role, name, size and content of every file, wherever they lie."""
        lines = [f"{file.role} {file.path.name} {file.num_bytes} {file.digest}" for file in self.files]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def bundle_of_checkpoint(checkpoint: Checkpoint, cache_directory: Path | None) -> SourceBundle:
    """The bundle of an open GGUF checkpoint: its file, or its parts in order."""
    described = zip(
        checkpoint.files, checkpoint.file_sizes(), checkpoint.file_digests(cache_directory), strict=True
    )
    files = tuple(SourceFile(SourceRole.WEIGHTS, *each) for each in described)
    return SourceBundle(checkpoint.path.parent, files)


def bundle_of_folder(folder: Path, cache_directory: Path | None) -> SourceBundle:
    """The bundle of a Hugging Face folder: config.json, tokenizer.json and the safetensors shards.

    Raises ModelNotFound for a folder that is none or lacks a required file, MalformedCheckpoint for a file
    that is empty or cannot be read.
    """
    if not folder.is_dir():
        raise ModelNotFound(str(folder), "a Hugging Face model is a folder, and this is none")
    shards = sorted(path for path in folder.iterdir() if path.name.lower().endswith(WEIGHTS_ENDING))
    required = [(SourceRole.SEMANTICS, folder / CONFIG_FILE), (SourceRole.TOKENIZER, folder / TOKENIZER_FILE)]
    missing = [path.name for _, path in required if not path.is_file()] + ["*.safetensors"] * (not shards)
    if missing:
        raise ModelNotFound(str(folder), f"a Hugging Face model needs {' and '.join(missing)} in its folder")
    optional = [folder / name for name in OPTIONAL_FILES if (folder / name).is_file()]
    roles = [
        *required,
        *((SourceRole.TOKENIZER, path) for path in optional),
        *((SourceRole.WEIGHTS, path) for path in shards),
    ]
    return SourceBundle(folder, tuple(_source_file(role, path, cache_directory) for role, path in roles))


def _source_file(role: SourceRole, path: Path, cache_directory: Path | None) -> SourceFile:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size == 0:
                raise MalformedCheckpoint(str(path), "is empty")
            data = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except OSError as error:
        raise MalformedCheckpoint(str(path), f"cannot be read: {error.strerror}") from error
    if cache_directory is None or role is not SourceRole.WEIGHTS:
        digest = content_digest(data)
    else:
        digest = cached_digest(path, data, FileFingerprint.of(status), cache_directory)
    return SourceFile(role, path, status.st_size, digest)
