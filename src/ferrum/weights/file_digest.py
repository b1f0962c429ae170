"""A digest of a weight file's bytes, fast enough to be part of every start-up. Knows nothing of formats."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ferrum.core.arrays import ByteArray
from ferrum.weights.mapped_pages import release_pages

# Pieces are hashed on several threads and their digests hashed again; the size is part of the definition.
PIECE_BYTES = 16 << 20
MAX_THREADS = 8


@dataclass(frozen=True, slots=True)
class FileFingerprint:
    """What the file system says of a file. Any write changes the change time, which cannot be set back."""

    device: int
    inode: int
    num_bytes: int
    modified_ns: int
    changed_ns: int

    @staticmethod
    def of(status: os.stat_result) -> FileFingerprint:
        return FileFingerprint(
            status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        )


def content_digest(data: ByteArray) -> str:
    """SHA-256 over the SHA-256 digests of the file's 16 MiB pieces, in hex: every byte counts."""
    pieces = [data[start : start + PIECE_BYTES] for start in range(0, data.size, PIECE_BYTES)]
    with ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1)) as pool:
        return hashlib.sha256(b"".join(pool.map(_piece_digest, pieces))).hexdigest()


def _piece_digest(piece: ByteArray) -> bytes:
    digest = hashlib.sha256(piece.data).digest()
    release_pages(piece)
    return digest


def cached_digest(path: Path, data: ByteArray, fingerprint: FileFingerprint, cache_directory: Path) -> str:
    """The content digest, remembered in ``cache_directory`` while the file's fingerprint stays the same.

    A cache that cannot be read or written only costs the time of hashing.
    """
    key = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:32]
    remembered = cache_directory / f"{key}.json"
    expected = asdict(fingerprint)
    with suppress(OSError, ValueError, TypeError, KeyError):
        record = json.loads(remembered.read_text())
        if record["fingerprint"] == expected:
            return str(record["digest"])
    digest = content_digest(data)
    with suppress(OSError):
        cache_directory.mkdir(parents=True, exist_ok=True)
        _replace(remembered, json.dumps({"path": str(path), "fingerprint": expected, "digest": digest}))
    return digest


def _replace(path: Path, text: str) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".digest-")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
