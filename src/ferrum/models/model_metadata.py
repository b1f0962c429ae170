"""The numbers that describe a model, read from its metadata and checked before anything is built on them."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ferrum.core.errors import MalformedCheckpoint, UnsupportedModel
from ferrum.weights.checkpoint import Checkpoint

# Beyond any model, and small enough that nothing made from a few such numbers overflows or takes long.
_MOST: Final = 1 << 24
_WIDEST_HEAD: Final = 1 << 12


class ModelMetadata:
    """Keys of the checkpoint's own architecture: ``count("block_count")`` reads ``llama.block_count``.

    Raises MalformedCheckpoint naming the key for a missing, mistyped or impossible value.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._metadata = checkpoint.metadata
        self._path = str(checkpoint.path)
        self._architecture = checkpoint.architecture

    def has(self, key: str) -> bool:
        return self._key(key) in self._metadata

    def count(self, key: str, default: int | None = None, most: int = _MOST) -> int:
        """An integer of at least 1; some converters write one for each layer, which must then be equal."""
        full = self._key(key)
        if isinstance(self._metadata.get(full), np.ndarray):
            value = self._same_in_all_layers(full)
        elif default is None:
            value = self._metadata.get_int(full)
        else:
            value = self._metadata.get_int(full, default)
        if not 1 <= value <= most:
            raise self.malformed(key, f"must be between 1 and {most}, not {value}")
        return value

    def optional_count(self, key: str) -> int | None:
        """None where the key is missing or says 0, the converters' way to switch a feature off."""
        value = self._metadata.get_int(self._key(key), 0)
        return self.count(key) if value else None

    def positive(self, key: str, default: float | None = None) -> float:
        """A finite number above 0."""
        full = self._key(key)
        value = self._metadata.get_float(full) if default is None else self._metadata.get_float(full, default)
        if not (math.isfinite(value) and value > 0):
            raise self.malformed(key, f"must be a finite number above 0, not {value:g}")
        return value

    def optional_positive(self, key: str) -> float | None:
        """None where the key is missing or says 0."""
        value = self._metadata.get_float(self._key(key), 0.0)
        return self.positive(key) if value else None

    def head_width(self, default: int) -> int:
        """Values of each query, key and value head. Raises UnsupportedModel where value heads differ."""
        key_length = self.count("attention.key_length", default, most=_WIDEST_HEAD)
        value_length = self.count("attention.value_length", key_length)
        if key_length != value_length:
            raise self.unsupported(f"key heads of {key_length} and value heads of {value_length} values")
        return key_length

    def text(self, key: str, default: str) -> str:
        return self._metadata.get_str(self._key(key), default)

    def malformed(self, key: str, problem: str) -> MalformedCheckpoint:
        return MalformedCheckpoint(self._path, f"metadata key {self._key(key)!r} {problem}")

    def unsupported(self, feature: str) -> UnsupportedModel:
        return UnsupportedModel(self._path, feature)

    def _key(self, key: str) -> str:
        return f"{self._architecture}.{key}"

    def _same_in_all_layers(self, full: str) -> int:
        values = sorted(set(self._metadata.get_int_array(full).tolist()))
        if len(values) != 1:
            raise self.unsupported(
                f"metadata key {full!r} differs between layers; this build cannot run that"
            )
        return int(values[0])
