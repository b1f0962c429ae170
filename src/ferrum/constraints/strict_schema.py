"""OpenAI's strict mode: an object has all of the properties that its schema names."""

from __future__ import annotations

from typing import Any

from ferrum.constraints.schema_walk import change_schemas


def with_all_required(schema: Any) -> Any:
    """A copy of ``schema`` in which every named property is required."""
    return change_schemas(schema, _require_all)


def _require_all(schema: dict[str, Any]) -> None:
    properties, required = schema.get("properties"), schema.get("required", [])
    if isinstance(properties, dict) and isinstance(required, list):
        schema["required"] = list(dict.fromkeys([*properties, *required]))
