"""Bounded reading of GGUF's values: nothing is allocated or looped over before it is known to fit."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import overload

import numpy as np

from ferrum.core.arrays import ByteArray
from ferrum.core.errors import MalformedCheckpoint
from ferrum.weights.metadata import MetadataValue, NumberArray

BOOL, STRING, ARRAY = 7, 8, 9
# Value type id -> little-endian NumPy type (GGUF specification, gguf_metadata_value_type).
NUMBER_TYPES: Mapping[int, str] = MappingProxyType(
    {
        0: "<u1",
        1: "<i1",
        2: "<u2",
        3: "<i2",
        4: "<u4",
        5: "<i4",
        6: "<f4",
        BOOL: "<u1",
        10: "<u8",
        11: "<i8",
        12: "<f8",
    }
)
MAX_NAME_BYTES = 65_535  # the specification's limit for a key
# Thirty times the largest published vocabulary; bounds the time spent on a crafted array of empty strings.
MAX_ARRAY_STRINGS = 1 << 23
LENGTH_BYTES = 8


class StringArray(Sequence[str]):
    """Strings that are decoded on first access: a vocabulary is often looked at only to find it cached."""

    def __init__(self, encoded: bytes, count: int) -> None:
        self._encoded = encoded  # ``count`` times a 64-bit length and that many bytes
        self._count = count
        self._decoded: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self._strings()[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._strings())

    def _strings(self) -> tuple[str, ...]:
        if self._decoded is None:
            # Imported where it is used: commands that read no file start without the native module.
            from ferrum import _native

            self._decoded = _native.read_strings(self._encoded, self._count)
        return self._decoded


class GgufCursor:
    """A position in a mapped file that moves forward only. ``what`` names the value in error messages.

    Every method raises MalformedCheckpoint when the value would end beyond the file.
    """

    def __init__(self, path: str, mapping: mmap.mmap) -> None:
        self._path = path
        self._mapping = mapping
        self._bytes: ByteArray = np.frombuffer(mapping, np.uint8)
        self._size = len(mapping)
        self.position = 0

    @property
    def remaining(self) -> int:
        return self._size - self.position

    def malformed(self, problem: str) -> MalformedCheckpoint:
        return MalformedCheckpoint(self._path, problem)

    def read_number(self, dtype: str, what: str) -> int | float:
        kind = np.dtype(dtype)
        return np.frombuffer(self._take(kind.itemsize, what), kind)[0].item()  # type: ignore[no-any-return]

    def read_u32(self, what: str) -> int:
        return int.from_bytes(self._take(4, what), "little")

    def read_u64(self, what: str) -> int:
        return int.from_bytes(self._take(8, what), "little")

    def read_count(self, what: str, item_bytes: int) -> int:
        """A 64-bit count of items that take at least ``item_bytes`` each."""
        count = self.read_u64(what)
        if count > self.remaining // item_bytes:
            raise self.malformed(
                f"{what} is {count}, more than the {self.remaining} bytes that follow can hold (truncated?)"
            )
        return count

    def read_string(self, what: str) -> str:
        count = self.read_count(f"length of {what}", 1)
        return str(self._take(count, what), "utf-8", "surrogateescape")

    def read_name(self, what: str) -> str:
        """A key or tensor name: not empty, at most 65,535 bytes, valid UTF-8."""
        count = self.read_count(f"length of {what}", 1)
        if not 0 < count <= MAX_NAME_BYTES:
            raise self.malformed(f"length of {what} is {count}; a name has 1 to {MAX_NAME_BYTES} bytes")
        raw = self._take(count, what)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self.malformed(f"{what} is not valid UTF-8: {raw[:60]!r}") from None

    def read_value(self, what: str) -> MetadataValue:
        """A metadata value with the type id in front of it."""
        value_type = self.read_u32(f"type of {what}")
        if value_type == STRING:
            return self.read_string(what)
        if value_type == ARRAY:
            return self._read_array(what)
        if value_type not in NUMBER_TYPES:
            raise self.malformed(f"{what} has the unknown value type {value_type}")
        number = self.read_number(NUMBER_TYPES[value_type], what)
        if value_type == BOOL:
            if number not in (0, 1):
                raise self.malformed(f"{what} is a boolean with the value {number}")
            return bool(number)
        return number

    def _read_array(self, what: str) -> MetadataValue:
        item_type = self.read_u32(f"item type of {what}")
        if item_type == STRING:
            count = self.read_count(f"number of items of {what}", LENGTH_BYTES)
            return self._read_string_array(what, count)
        if item_type == ARRAY:
            raise self.malformed(f"{what} is an array of arrays, which no model uses")
        if item_type not in NUMBER_TYPES:
            raise self.malformed(f"{what} is an array of the unknown value type {item_type}")
        dtype = np.dtype(NUMBER_TYPES[item_type])
        count = self.read_count(f"number of items of {what}", dtype.itemsize)
        values: NumberArray = np.frombuffer(self._take(count * dtype.itemsize, what), dtype)
        if item_type == BOOL:
            if count and int(values.max()) > 1:
                raise self.malformed(f"{what} is an array of booleans with the value {values.max()}")
            return values.astype(np.bool_)
        return values

    def _read_string_array(self, what: str, count: int) -> StringArray:
        if count > MAX_ARRAY_STRINGS:
            raise self.malformed(f"{what} has {count} strings; at most {MAX_ARRAY_STRINGS} are read")
        from ferrum import _native

        end, num_found = _native.skip_strings(self._bytes, self.position, count)
        if num_found < count:
            raise self.malformed(
                f"{what} ends beyond the file's {self._size} bytes, near item {num_found} of {count}"
            )
        return StringArray(self._take(end - self.position, what), count)

    def _take(self, count: int, what: str) -> bytes:
        if count > self.remaining:
            raise self.malformed(
                f"truncated: {what} needs {count} bytes at {self.position}, but the file has {self._size}"
            )
        taken = self._mapping[self.position : self.position + count]
        self.position += count
        return taken
