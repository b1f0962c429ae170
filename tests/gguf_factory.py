"""Writes small GGUF files from Python values, so that tests need no model files.

Format: the GGUF specification (ggml, docs/gguf.md).
"""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ferrum.weights.tensor_types import TensorType

VALUE_TYPES = {"u1": 0, "i1": 1, "u2": 2, "i2": 3, "u4": 4, "i4": 5, "f4": 6, "u8": 10, "i8": 11, "f8": 12}
BOOL, STRING, ARRAY = 7, 8, 9

Tensor = tuple[TensorType, Any, tuple[int, ...]]


def write_gguf(
    path: Path,
    metadata: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    *,
    version: int = 3,
    alignment: int = 32,
) -> Path:
    """Write a GGUF file and return its path.

    ``tensors`` maps a name to (type, bytes or array of the stored bits, shape in row-major order).
    In ``metadata`` True and False become BOOL, an int UINT32 (INT32 if negative, else 64 bits), a float
    FLOAT32, a str or bytes STRING, a list an ARRAY of what its first item becomes (an empty one of INT32), a
    NumPy scalar or array its own width. ``alignment`` is also written as general.alignment unless it is 32.
    """
    if alignment != 32:
        metadata = {**metadata, "general.alignment": alignment}
    path.write_bytes(encode_gguf(metadata, tensors, version=version, alignment=alignment))
    return path


def encode_gguf(
    metadata: Mapping[str, Any], tensors: Mapping[str, Tensor], *, version: int = 3, alignment: int = 32
) -> bytes:
    """The bytes of such a file; ``alignment`` is only used for the layout."""
    header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    header += b"".join(encode_string(key) + encode_value(value) for key, value in metadata.items())
    data = b""
    for name, (kind, stored, shape) in tensors.items():
        raw = np.asarray(stored).tobytes() if not isinstance(stored, bytes) else stored
        data += bytes(-len(data) % alignment)
        header += encode_tensor_entry(name, shape[::-1], kind.ggml_id, len(data))
        data += raw
    return header + bytes(-len(header) % alignment) + data


def encode_tensor_entry(name: str, dimensions: Sequence[int], type_id: int, offset: int) -> bytes:
    """One line of the tensor table; ``dimensions`` in GGUF's order, contiguous first."""
    packed = struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, type_id, offset)
    return encode_string(name) + packed


def encode_string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def encode_value(value: Any) -> bytes:
    """A metadata value with its type id in front."""
    if isinstance(value, np.ndarray):
        value_type = BOOL if value.dtype == np.bool_ else VALUE_TYPES[value.dtype.str[1:]]
        return struct.pack("<IIQ", ARRAY, value_type, value.size) + value.tobytes()
    if isinstance(value, list | tuple):
        items = [encode_value(item) for item in value] or [encode_value(np.int32(0))]
        value_type = items[0][:4]
        assert all(item[:4] == value_type for item in items), "an array has items of one type"
        return (
            struct.pack("<I", ARRAY)
            + value_type
            + struct.pack("<Q", len(value))
            + b"".join(item[4:] for item in items[: len(value)])
        )
    if isinstance(value, str | bytes):
        return struct.pack("<I", STRING) + encode_string(value)
    if isinstance(value, bool | np.bool_):
        return struct.pack("<IB", BOOL, int(value))
    if isinstance(value, np.generic):
        return struct.pack("<I", VALUE_TYPES[value.dtype.str[1:]]) + value.tobytes()
    if isinstance(value, float):
        return encode_value(np.float32(value))
    narrow = np.uint32 if 0 <= value < 2**32 else np.int32 if -(2**31) <= value < 0 else None
    return encode_value((narrow or (np.uint64 if value >= 0 else np.int64))(value))
