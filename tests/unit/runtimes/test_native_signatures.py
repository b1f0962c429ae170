"""What the native module binds speaks Python's types alone."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from ferrum import _native


def test_no_signature_names_a_type_that_python_cannot_have() -> None:
    """A source of bindings that lacks a converter compiles, and each call of what it binds raises TypeError."""
    docs = dict(signatures(_native, "_native"))
    assert "_native.measure.ReadBuffer.measure" in docs
    assert [name for name, doc in docs.items() if "std::" in doc] == []


def signatures(room: object, path: str) -> Iterator[tuple[str, str]]:
    for name, value in vars(room).items():
        if name.startswith("__") and name != "__init__":
            continue
        yield f"{path}.{name}", value.__doc__ or ""
        if isinstance(value, type | ModuleType):
            yield from signatures(value, f"{path}.{name}")
