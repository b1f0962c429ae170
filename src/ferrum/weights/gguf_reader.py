"""Reads one GGUF file (versions 2 and 3, little-endian) through a memory map. Knows nothing of models.

Format: the GGUF specification (ggml, docs/gguf.md). A file is refused before anything of its declared size is
allocated: every count is bounded by the bytes that are left, every tensor must lie inside the file.
"""

from __future__ import annotations

import math
import mmap
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ferrum.core.arrays import ByteArray
from ferrum.core.errors import MalformedCheckpoint, ModelNotFound, UnsupportedModel
from ferrum.weights.file_digest import FileFingerprint
from ferrum.weights.gguf_cursor import GgufCursor
from ferrum.weights.metadata import Metadata, MetadataValue
from ferrum.weights.quantized_tensor import QuantizedTensor
from ferrum.weights.tensor_types import OTHER_TYPE_NAMES, SUPPORTED_TYPES, TensorType

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4
MAX_ELEMENTS = 2**63 - 1
# Least bytes of an entry: a key's length, one byte of it, a type and a value of one byte ...
LEAST_PAIR_BYTES = 8 + 1 + 4 + 1
# ... and a tensor name's length, one byte of it, a rank, a dimension, a type and an offset.
LEAST_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8


@dataclass(frozen=True, slots=True, eq=False)
class GgufFile:
    """A file that passed every check. Tensors are views of ``data``, which is the map of the whole file."""

    path: Path
    fingerprint: FileFingerprint
    metadata: Metadata
    tensors: Mapping[str, QuantizedTensor]
    data: ByteArray  # [file bytes], read-only


@dataclass(frozen=True, slots=True)
class _TensorEntry:
    name: str
    type: TensorType
    shape: tuple[int, ...]
    offset: int  # bytes from the start of the data section


def read_gguf(path: Path) -> GgufFile:
    """Map and check the file at ``path``.

    Raises ModelNotFound when it cannot be opened, MalformedCheckpoint when it breaks the format and
    UnsupportedModel for a well-formed file of another version, byte order or tensor type.
    """
    mapping, fingerprint = _map_file(path)
    cursor = GgufCursor(str(path), mapping)
    num_tensors, num_pairs = _read_header(path, mapping, cursor)
    metadata = _read_metadata(path, cursor, num_pairs)
    entries = _read_tensor_entries(path, cursor, num_tensors)
    alignment = _alignment(path, metadata)
    data_start = -(-cursor.position // alignment) * alignment
    data = np.frombuffer(mapping, np.uint8)
    tensors = {entry.name: _view(path, entry, data, data_start, alignment) for entry in entries}
    return GgufFile(path, fingerprint, metadata, tensors, data)


def _map_file(path: Path) -> tuple[mmap.mmap, FileFingerprint]:
    try:
        # Opening a pipe would wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ModelNotFound(str(path), f"cannot be opened: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ModelNotFound(str(path), "is not a regular file")
        if status.st_size == 0:
            raise MalformedCheckpoint(str(path), "is empty")
        try:
            mapping = mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)
        except OSError as error:
            raise ModelNotFound(str(path), f"cannot be mapped into memory: {error.strerror}") from error
        return mapping, FileFingerprint.of(status)
    finally:
        os.close(descriptor)


def _read_header(path: Path, mapping: mmap.mmap, cursor: GgufCursor) -> tuple[int, int]:
    """Magic, version and the two counts: number of tensors, number of metadata pairs."""
    if mapping[: len(MAGIC)] != MAGIC:
        raise MalformedCheckpoint(str(path), f"is not a GGUF file: it does not begin with {MAGIC.decode()}")
    cursor.position = len(MAGIC)
    version = cursor.read_u32("version")
    if version & 0xFFFF == 0 and version:
        raise UnsupportedModel(str(path), "big-endian GGUF; convert it to little-endian")
    if version not in VERSIONS:
        raise UnsupportedModel(str(path), f"GGUF version {version}; versions 2 and 3 can be read")
    num_tensors = cursor.read_count("tensor count", LEAST_TENSOR_BYTES)
    num_pairs = cursor.read_count("metadata pair count", LEAST_PAIR_BYTES)
    return num_tensors, num_pairs


def _read_metadata(path: Path, cursor: GgufCursor, num_pairs: int) -> Metadata:
    values: dict[str, MetadataValue] = {}
    for index in range(num_pairs):
        key = cursor.read_name(f"metadata key {index + 1} of {num_pairs}")
        if key in values:
            raise MalformedCheckpoint(str(path), f"metadata key {key!r} appears twice")
        values[key] = cursor.read_value(f"metadata key {key!r}")
    return Metadata(str(path), values)


def _read_tensor_entries(path: Path, cursor: GgufCursor, num_tensors: int) -> list[_TensorEntry]:
    entries: dict[str, _TensorEntry] = {}
    for index in range(num_tensors):
        name = cursor.read_name(f"name of tensor {index + 1} of {num_tensors}")
        if name in entries:
            raise MalformedCheckpoint(str(path), f"tensor {name!r} appears twice")
        entries[name] = _read_tensor_entry(path, cursor, name)
    return list(entries.values())


def _read_tensor_entry(path: Path, cursor: GgufCursor, name: str) -> _TensorEntry:
    what = f"tensor {name!r}"
    num_dimensions = cursor.read_u32(f"number of dimensions of {what}")
    if not 1 <= num_dimensions <= MAX_DIMENSIONS:
        raise MalformedCheckpoint(
            str(path), f"{what} has {num_dimensions} dimensions; 1 to {MAX_DIMENSIONS} are possible"
        )
    dimensions = [cursor.read_u64(f"dimensions of {what}") for _ in range(num_dimensions)]
    type_id = cursor.read_u32(f"type of {what}")
    offset = cursor.read_u64(f"offset of {what}")
    if 0 in dimensions or math.prod(dimensions) > MAX_ELEMENTS:
        raise MalformedCheckpoint(
            str(path), f"{what} has dimensions {dimensions}: each must be positive, their product below 2^63"
        )
    kind = _tensor_type(path, what, type_id)
    if dimensions[0] % kind.block_size:
        raise MalformedCheckpoint(
            str(path),
            f"{what} has rows of {dimensions[0]} values, not a multiple of {kind.name}'s {kind.block_size}",
        )
    # GGUF writes the contiguous dimension first.
    return _TensorEntry(name, kind, tuple(reversed(dimensions)), offset)


def _tensor_type(path: Path, what: str, type_id: int) -> TensorType:
    if type_id in SUPPORTED_TYPES:
        return SUPPORTED_TYPES[type_id]
    if type_id in OTHER_TYPE_NAMES:
        stored = f"{OTHER_TYPE_NAMES[type_id]} ({type_id})"
        raise UnsupportedModel(str(path), f"{what} is stored as {stored}, which is not yet supported")
    raise UnsupportedModel(str(path), f"{what} has the unknown type id {type_id}")


def _alignment(path: Path, metadata: Metadata) -> int:
    alignment = metadata.get_int("general.alignment", DEFAULT_ALIGNMENT)
    # The specification asks for a multiple of 8; every writer uses a power of two.
    if alignment < 8 or alignment & (alignment - 1):
        raise MalformedCheckpoint(
            str(path),
            f"metadata key 'general.alignment' is {alignment}; it must be a power of two of at least 8",
        )
    return alignment


def _view(
    path: Path, entry: _TensorEntry, data: ByteArray, data_start: int, alignment: int
) -> QuantizedTensor:
    """The entry's bytes as a view of the map ``data`` [file bytes]."""
    num_bytes = math.prod(entry.shape[:-1]) * entry.type.row_bytes(entry.shape[-1])
    if entry.offset % alignment:
        raise MalformedCheckpoint(
            str(path), f"tensor {entry.name!r} is at offset {entry.offset}, not a multiple of {alignment}"
        )
    start = data_start + entry.offset
    if start + num_bytes > data.size:
        raise MalformedCheckpoint(
            str(path),
            f"truncated: tensor {entry.name!r} needs bytes {start} to {start + num_bytes}, "
            f"but the file has {data.size}; download it again",
        )
    return QuantizedTensor(entry.name, entry.type, entry.shape, data[start : start + num_bytes])
