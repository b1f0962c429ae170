"""Every schema within a schema, changed by the same rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_SCHEMAS_BY_NAME = ("properties", "patternProperties", "$defs", "definitions")
_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE_SCHEMAS = ("items", "additionalProperties")


def change_schemas(schema: Any, change: Callable[[dict[str, Any]], None]) -> Any:
    """A copy of ``schema`` in which ``change`` was applied to every schema, the inner ones first.

    Values that only look like schemas (in enum, const or default) and what is no schema stay as they are.
    """
    if not isinstance(schema, dict):
        return schema
    copy = dict(schema)
    for keyword in _SCHEMAS_BY_NAME:
        if isinstance(copy.get(keyword), dict):
            copy[keyword] = {name: change_schemas(each, change) for name, each in copy[keyword].items()}
    for keyword in _SCHEMA_LISTS:
        if isinstance(copy.get(keyword), list):
            copy[keyword] = [change_schemas(each, change) for each in copy[keyword]]
    for keyword in _SINGLE_SCHEMAS:
        if keyword in copy:
            copy[keyword] = change_schemas(copy[keyword], change)
    change(copy)
    return copy
