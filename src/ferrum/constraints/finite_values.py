"""Whether a schema has a value that ends: recursion without a way out would be written for ever."""

from __future__ import annotations

from typing import Any

from ferrum.constraints.schema_rewriter import Schema


def has_finite_value(schema: Schema) -> bool:
    """For a rewritten schema. False is certain; True may still be a schema without any value.

    The definitions that end are found as a least fixed point: each round assumes of the others only what the
    rounds before have shown.
    """
    definitions: dict[str, Schema] = schema.get("$defs", {})
    finite: set[str] = set()
    while True:
        found = {name for name, each in definitions.items() if _is_finite(each, finite)}
        if found == finite:
            return _is_finite(schema, finite)
        finite = found


def _is_finite(schema: Schema, finite: set[str]) -> bool:
    if "$ref" in schema and schema["$ref"].removeprefix("#/$defs/") not in finite:
        return False
    if not all(_is_finite(each, finite) for each in schema.get("allOf", ())):
        return False
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema and not any(_is_finite(each, finite) for each in schema[keyword]):
            return False
    return _may_be_short(schema, finite)


def _may_be_short(schema: Schema, finite: set[str]) -> bool:
    """Whether it allows a value that is no container, or a container whose compulsory parts end."""
    if "enum" in schema or "const" in schema:
        return True
    types: Any = schema.get("type", ())
    types = {types} if isinstance(types, str) else set(types)
    if types != {"object"} and types != {"array"} and types != {"object", "array"}:
        return True
    ends_as_object = "object" in types and _compulsory_properties_end(schema, finite)
    return ends_as_object or ("array" in types and _compulsory_items_end(schema, finite))


def _compulsory_properties_end(schema: Schema, finite: set[str]) -> bool:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    return all(_is_finite(properties.get(name, others), finite) for name in schema.get("required", ()))


def _compulsory_items_end(schema: Schema, finite: set[str]) -> bool:
    first, rest, least = schema.get("prefixItems", []), schema.get("items", {}), schema.get("minItems", 0)
    if least > len(first) and not _is_finite(rest, finite):
        return False
    return all(_is_finite(each, finite) for each in first[:least])
