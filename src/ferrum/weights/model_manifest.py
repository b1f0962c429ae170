"""The record that makes a folder of the store a model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

MANIFEST_NAME = "manifest.json"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A weight file and the size it must have."""

    path: Path
    num_bytes: int

    @staticmethod
    def of(path: Path) -> StoredFile:
        return StoredFile(path, path.stat().st_size)

    @property
    def is_whole(self) -> bool:
        try:
            return self.path.stat().st_size == self.num_bytes
        except OSError:
            return False


@dataclass(frozen=True, slots=True)
class ModelManifest:
    """What was fetched. Files in the manifest's own folder are recorded by name, others by absolute path."""

    name: str
    source: str
    format: str
    files: tuple[StoredFile, ...]
    sha256: str | None

    @property
    def is_complete(self) -> bool:
        return bool(self.files) and all(file.is_whole for file in self.files)

    @staticmethod
    def load(folder: Path) -> ModelManifest | None:
        """The manifest in ``folder``, or None where there is none that can be read."""
        try:
            record = json.loads((folder / MANIFEST_NAME).read_text())
            files = tuple(
                StoredFile(folder / entry["path"], int(entry["bytes"])) for entry in record["files"]
            )
            return ModelManifest(record["name"], record["source"], record["format"], files, record["sha256"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def save(self, folder: Path) -> None:
        record = {
            "name": self.name,
            "source": self.source,
            "format": self.format,
            "sha256": self.sha256,
            "files": [
                {
                    "path": file.path.name if file.path.parent == folder else str(file.path.absolute()),
                    "bytes": file.num_bytes,
                }
                for file in self.files
            ],
        }
        (folder / MANIFEST_NAME).write_text(json.dumps(record, indent=2) + "\n")
