"""KvDtype: how keys and values are kept in the cache. Part of a result's identity, chosen by name."""

from __future__ import annotations

from enum import StrEnum


class KvDtype(StrEnum):
    """F16: half precision. INT8: codes of 8 bits with one scale a token and head (docs/numerics.md)."""

    F16 = "f16"
    INT8 = "int8"
