"""A checkpoint's metadata: typed access whose complaints name the key. Knows no format and no model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from ferrum.core.arrays import FloatArray
from ferrum.core.errors import MalformedCheckpoint

Int64Array = NDArray[np.int64]
NumberArray = NDArray[np.generic]
MetadataValue = bool | int | float | str | NumberArray | Sequence[str]
Default = TypeVar("Default")


class _Required(Enum):
    """Stands for "no default": None is a default that callers use."""

    KEY = "key"


class Metadata(Mapping[str, MetadataValue]):
    """Read-only metadata of the checkpoint at ``path``; iteration keeps the file's order.

    The ``get_`` methods raise MalformedCheckpoint naming the key when its value has another type, and also
    when it is missing and no default is given. Any integer width counts as an integer; text may hold
    surrogate escapes where the file is not valid UTF-8.
    """

    def __init__(self, path: str, values: Mapping[str, MetadataValue]) -> None:
        self._path = path
        self._values = dict(values)

    def __getitem__(self, key: str) -> MetadataValue:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def get_int(self, key: str) -> int: ...
    @overload
    def get_int(self, key: str, default: Default) -> int | Default: ...
    def get_int(self, key: str, default: object = _Required.KEY) -> object:
        if key not in self._values:
            return self._default(key, default)
        value = self._values[key]
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong_type(key, "an integer")
        return value

    @overload
    def get_float(self, key: str) -> float: ...
    @overload
    def get_float(self, key: str, default: Default) -> float | Default: ...
    def get_float(self, key: str, default: object = _Required.KEY) -> object:
        """A float; an integer is widened, since some converters write round numbers as integers."""
        if key not in self._values:
            return self._default(key, default)
        value = self._values[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong_type(key, "a number")
        return float(value)

    @overload
    def get_str(self, key: str) -> str: ...
    @overload
    def get_str(self, key: str, default: Default) -> str | Default: ...
    def get_str(self, key: str, default: object = _Required.KEY) -> object:
        if key not in self._values:
            return self._default(key, default)
        value = self._values[key]
        if not isinstance(value, str):
            raise self._wrong_type(key, "a string")
        return value

    @overload
    def get_bool(self, key: str) -> bool: ...
    @overload
    def get_bool(self, key: str, default: Default) -> bool | Default: ...
    def get_bool(self, key: str, default: object = _Required.KEY) -> object:
        if key not in self._values:
            return self._default(key, default)
        value = self._values[key]
        if not isinstance(value, bool):
            raise self._wrong_type(key, "a boolean")
        return value

    @overload
    def get_int_array(self, key: str) -> Int64Array: ...
    @overload
    def get_int_array(self, key: str, default: Default) -> Int64Array | Default: ...
    def get_int_array(self, key: str, default: object = _Required.KEY) -> object:
        """An array of integers of any width, as int64: [n]."""
        if key not in self._values:
            return self._default(key, default)
        value = self._values[key]
        if not isinstance(value, np.ndarray) or not np.issubdtype(value.dtype, np.integer):
            raise self._wrong_type(key, "an array of integers")
        if value.dtype == np.uint64 and value.size and int(value.max()) >= 2**63:
            raise MalformedCheckpoint(
                self._path, f"metadata key {key!r} holds {value.max()}, beyond 64 bits signed"
            )
        return value.astype(np.int64)

    @overload
    def get_float_array(self, key: str) -> FloatArray: ...
    @overload
    def get_float_array(self, key: str, default: Default) -> FloatArray | Default: ...
    def get_float_array(self, key: str, default: object = _Required.KEY) -> object:
        """An array of floats of any width, as float32: [n]."""
        if key not in self._values:
            return self._default(key, default)
        value = self._values[key]
        if not isinstance(value, np.ndarray) or not np.issubdtype(value.dtype, np.floating):
            raise self._wrong_type(key, "an array of floats")
        return value.astype(np.float32)

    @overload
    def get_str_array(self, key: str) -> Sequence[str]: ...
    @overload
    def get_str_array(self, key: str, default: Default) -> Sequence[str] | Default: ...
    def get_str_array(self, key: str, default: object = _Required.KEY) -> object:
        if key not in self._values:
            return self._default(key, default)
        value = self._values[key]
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise self._wrong_type(key, "an array of strings")
        return value

    def _default(self, key: str, default: object) -> object:
        if default is _Required.KEY:
            raise MalformedCheckpoint(self._path, f"metadata key {key!r} is missing")
        return default

    def _wrong_type(self, key: str, expected: str) -> MalformedCheckpoint:
        found = _describe(self._values[key])
        return MalformedCheckpoint(self._path, f"metadata key {key!r} must be {expected}, but it is {found}")


def _describe(value: MetadataValue) -> str:
    if isinstance(value, bool):
        return f"the boolean {value}"
    if isinstance(value, int):
        return f"the integer {value}"
    if isinstance(value, float):
        return f"the float {value:g}"
    if isinstance(value, str):
        return f"the string {value[:40]!r}"
    if isinstance(value, np.ndarray):
        return f"an array of {value.size} values of type {value.dtype.name}"
    return f"an array of {len(value)} strings"
