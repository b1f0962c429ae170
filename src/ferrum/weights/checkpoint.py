"""A model's weights and metadata as the rest of the engine sees them, whatever files they came from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from ferrum.core.errors import MalformedCheckpoint
from ferrum.weights.checkpoint_files import checkpoint_files
from ferrum.weights.file_digest import cached_digest, content_digest
from ferrum.weights.gguf_reader import GgufFile, read_gguf
from ferrum.weights.metadata import Metadata
from ferrum.weights.quantized_tensor import QuantizedTensor


class Checkpoint:
    """Weights and metadata of one model, memory-mapped.

    ``close`` drops the checkpoint's own hold on the maps; a map goes away with the last tensor that views it,
    so a tensor in use is never pulled from under its reader. Build it with ``open_checkpoint``.
    """

    def __init__(self, path: Path, files: tuple[GgufFile, ...]) -> None:
        self.path = path
        self._files = files
        self._file_digests: tuple[str, ...] = ()
        self.metadata: Metadata = files[0].metadata
        self.tensors: Mapping[str, QuantizedTensor] = MappingProxyType(_join_tensors(files))

    @property
    def files(self) -> tuple[Path, ...]:
        """The files behind the checkpoint; empty once closed."""
        return tuple(file.path for file in self._files)

    @property
    def architecture(self) -> str:
        """``general.architecture``, such as "llama". Raises MalformedCheckpoint when there is none."""
        return self.metadata.get_str("general.architecture")

    @property
    def num_bytes(self) -> int:
        """Bytes of all files together."""
        return sum(self.file_sizes())

    def digest(self, cache_directory: Path | None = None) -> str:
        """64 hex digits that name the content: equal files have equal digests wherever they lie.

        Every byte of every file is hashed, so two fine-tunes of one shape differ. With ``cache_directory`` a
        file's digest is remembered there and reused while its device, inode, size, modification time and
        change time are all the same.
        """
        return hashlib.sha256("\n".join(self.file_digests(cache_directory)).encode()).hexdigest()

    def file_digests(self, cache_directory: Path | None = None) -> tuple[str, ...]:
        """The digest of each file, as in ``digest``; hashed once for a checkpoint."""
        assert self._files, "digest of a closed checkpoint"
        self._file_digests = self._file_digests or tuple(
            content_digest(file.data)
            if cache_directory is None
            else cached_digest(file.path, file.data, file.fingerprint, cache_directory)
            for file in self._files
        )
        return self._file_digests

    def file_sizes(self) -> tuple[int, ...]:
        """Bytes of each file."""
        return tuple(int(file.data.size) for file in self._files)

    def close(self) -> None:
        """Forget the tensors and their files; the metadata stays."""
        self._files = ()
        self.tensors = MappingProxyType({})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint at ``path``: a GGUF file, any part of a split one, or a folder that holds one.

    Raises ModelNotFound, MalformedCheckpoint or UnsupportedModel; see ``read_gguf``.
    """
    files = tuple(read_gguf(part) for part in checkpoint_files(path))
    for index, file in enumerate(files):
        _check_part(file, index, len(files))
    checkpoint = Checkpoint(files[0].path, files)
    _check_tensor_count(checkpoint)
    return checkpoint


def _check_part(file: GgufFile, index: int, num_files: int) -> None:
    """Compare what a part says of itself (split.count, split.no) with its place among the files."""
    count = file.metadata.get_int("split.count", 1)
    if count > 1 and num_files == 1:
        raise MalformedCheckpoint(
            str(file.path),
            f"metadata key 'split.count' says it is one of {count} parts, but its name does not end in "
            f"-00001-of-{count:05d}.gguf; give the parts their original names",
        )
    # A single file may carry split.count 0 or 1.
    if num_files == 1:
        return
    if count != num_files:
        raise MalformedCheckpoint(
            str(file.path), f"metadata key 'split.count' is {count}, but there are {num_files} parts"
        )
    number = file.metadata.get_int("split.no")
    if number != index:
        raise MalformedCheckpoint(
            str(file.path), f"metadata key 'split.no' is {number}, but its name says {index} (from 0)"
        )


def _check_tensor_count(checkpoint: Checkpoint) -> None:
    expected = checkpoint.metadata.get_int("split.tensors.count", None)
    if len(checkpoint.files) > 1 and expected is not None and expected != len(checkpoint.tensors):
        raise MalformedCheckpoint(
            str(checkpoint.path),
            f"metadata key 'split.tensors.count' is {expected}, "
            f"but the parts hold {len(checkpoint.tensors)} tensors",
        )


def _join_tensors(files: tuple[GgufFile, ...]) -> dict[str, QuantizedTensor]:
    tensors: dict[str, QuantizedTensor] = {}
    for file in files:
        repeated = tensors.keys() & file.tensors.keys()
        if repeated:
            raise MalformedCheckpoint(
                str(file.path), f"tensor {min(repeated)!r} is in an earlier part already"
            )
        tensors.update(file.tensors)
    return tensors
