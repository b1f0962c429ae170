"""The folder of fetched models. Knows nothing of where they come from.

Layout: ``<model>/manifest.json`` with its files beside it; ``.incoming/<model>/`` while a fetch runs;
``.locks/<model>.lock`` for processes that want the same model at once. A model appears by one rename.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from ferrum.core.errors import DownloadFailed, ModelNotFound
from ferrum.weights.disk_space import is_disk_full
from ferrum.weights.model_manifest import MANIFEST_NAME, ModelManifest, StoredFile

INCOMING = ".incoming"
LOCKS = ".locks"
NAME_FILE = "name"


class ModelState(StrEnum):
    READY = "ready"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True)
class StoredModel:
    """One line of a listing. ``num_bytes`` of an incomplete model is what lies there now."""

    name: str
    num_bytes: int
    format: str
    state: ModelState
    modified: datetime


@dataclass(frozen=True, slots=True)
class FetchedModel:
    """What a source brought: ``files`` in order, in the folder it was given or in the source's own cache."""

    files: tuple[Path, ...]
    source: str
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class RemovedModel:
    """What a removal freed. ``kept`` are files in a source's own cache, which other programs share."""

    num_bytes: int
    kept: tuple[Path, ...]


class ModelStore:
    """Models under ``directory``, which need not exist yet. Safe to use from several processes at once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def resolve(self, name: str) -> Path | None:
        """The first weight file of a model that is ready, or None. Touches no network."""
        manifest = ModelManifest.load(self._folder(name))
        if manifest is None or not manifest.is_complete:
            return None
        return manifest.files[0].path

    def list(self) -> tuple[StoredModel, ...]:
        """Every model, by name; what a killed fetch left, or one that still runs, is incomplete."""
        models = {model.name: model for model in map(_describe_incoming, self._folders(INCOMING))}
        models |= {model.name: model for model in map(_describe_stored, self._folders("."))}
        return tuple(models[name] for name in sorted(models))

    def add(self, name: str, fetch: Callable[[Path], FetchedModel], on_wait: Callable[[], None]) -> Path:
        """Have ``fetch`` put the model into an empty folder, then make it appear; return its first file.

        When another process is fetching the same model, ``on_wait`` is called and this one waits, then takes
        what the other brought. Whatever goes wrong, nothing stays; a full disk becomes DownloadFailed.
        """
        try:
            with self._locked(name, on_wait):
                return self.resolve(name) or self._fetch(name, fetch)
        except OSError as error:
            if is_disk_full(error):
                problem = f"no space left in {self.directory}; free some or set FERRUM_HOME to another disk"
            else:
                problem = f"cannot write to {self.directory}: {error.strerror or error}"
            raise DownloadFailed(name, problem) from error

    def remove(self, name: str) -> RemovedModel:
        """Delete a model, complete or not. Raises ModelNotFound listing the names there are."""
        if name not in {model.name for model in self.list()}:
            known = ", ".join(model.name for model in self.list()) or "none"
            raise ModelNotFound(name, f"it is not among the fetched models: {known}")
        with self._locked(name, _no_notice):
            # A folder whose manifest is lost is listed under its own name.
            folder = next(
                filter(Path.exists, (self._folder(name), self.directory / name)), self._folder(name)
            )
            manifest = ModelManifest.load(folder)
            files = () if manifest is None else tuple(file.path for file in manifest.files)
            freed = _folder_bytes(folder) + _folder_bytes(self._incoming(name))
            self._discard(folder)
            self._clear_incoming(name)
            return RemovedModel(freed, tuple(path for path in files if path.exists()))

    def _fetch(self, name: str, fetch: Callable[[Path], FetchedModel]) -> Path:
        """Called under the model's lock."""
        incoming = self._incoming(name)
        self._clear_incoming(name)
        try:
            incoming.mkdir(parents=True, exist_ok=True)
            (incoming / NAME_FILE).write_text(name)
            # A new name each time: the child of a killed fetch may still be writing to the old one.
            files = Path(tempfile.mkdtemp(prefix="files-", dir=incoming))
            fetched = fetch(files)
            _write_manifest(name, fetched, files)
            files.chmod(0o755)  # mkdtemp's folder is for its owner alone
            self._discard(self._folder(name))
            os.rename(files, self._folder(name))
        finally:
            self._clear_incoming(name)
        path = self.resolve(name)
        assert path is not None, name
        return path

    def _discard(self, folder: Path) -> None:
        """Take a folder out of sight with one rename before its files go one by one."""
        if folder.exists():
            grave = self._grave(folder.name)
            shutil.rmtree(grave, ignore_errors=True)
            grave.parent.mkdir(parents=True, exist_ok=True)
            os.rename(folder, grave)
            shutil.rmtree(grave, ignore_errors=True)

    def _clear_incoming(self, name: str) -> None:
        """Delete what a fetch or a removal left, be it this one or one that was killed."""
        shutil.rmtree(self._incoming(name), ignore_errors=True)
        shutil.rmtree(self._grave(self._folder(name).name), ignore_errors=True)

    @contextmanager
    def _locked(self, name: str, on_wait: Callable[[], None]) -> Iterator[None]:
        locks = self.directory / LOCKS
        locks.mkdir(parents=True, exist_ok=True)
        with open(locks / f"{self._folder(name).name}.lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _folder(self, name: str) -> Path:
        # Readable, and different for names that differ only in what a file name cannot hold.
        readable = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:80]
        return self.directory / f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"

    def _incoming(self, name: str) -> Path:
        return self.directory / INCOMING / self._folder(name).name

    def _grave(self, folder_name: str) -> Path:
        return self.directory / INCOMING / f".{folder_name}"

    def _folders(self, below: str) -> tuple[Path, ...]:
        try:
            found = sorted((self.directory / below).iterdir())
        except FileNotFoundError:
            return ()
        return tuple(folder for folder in found if folder.is_dir() and not folder.name.startswith("."))


def _no_notice() -> None:
    """Removing waits silently: the other holder of the lock says what it does."""


def _write_manifest(name: str, fetched: FetchedModel, folder: Path) -> None:
    files = tuple(StoredFile.of(file) for file in fetched.files)
    ModelManifest(name, fetched.source, "gguf", files, fetched.sha256).save(folder)


def _describe_stored(folder: Path) -> StoredModel:
    manifest = ModelManifest.load(folder)
    if manifest is None:
        return StoredModel(folder.name, _folder_bytes(folder), "?", ModelState.INCOMPLETE, _modified(folder))
    state = ModelState.READY if manifest.is_complete else ModelState.INCOMPLETE
    num_bytes = sum(file.num_bytes for file in manifest.files)
    return StoredModel(manifest.name, num_bytes, manifest.format, state, _modified(folder / MANIFEST_NAME))


def _describe_incoming(folder: Path) -> StoredModel:
    try:
        name = (folder / NAME_FILE).read_text()
    except OSError:
        name = folder.name
    return StoredModel(name, _folder_bytes(folder), "?", ModelState.INCOMPLETE, _modified(folder))


def _folder_bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.lstat().st_size if path.is_file() and path.name != MANIFEST_NAME else 0
        except FileNotFoundError:
            continue  # another process is at work in there
    return total


def _modified(path: Path) -> datetime:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except FileNotFoundError:
        return datetime.now(UTC)
