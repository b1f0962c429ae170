"""Which keywords of JSON Schema are enforced, which only describe, and which are refused and why."""

from __future__ import annotations

from types import MappingProxyType

DIALECTS = frozenset(
    {
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema",
        "http://json-schema.org/draft-06/schema",
    }
)
"""The meanings of "$schema" that are read, without the "#" that may follow."""

ANNOTATIONS = frozenset(
    {
        "$anchor",
        "$comment",
        "$defs",
        "$id",
        "$schema",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "default",
        "definitions",
        "deprecated",
        "description",
        "discriminator",  # OpenAPI's: says which of the alternatives to look at, forbids nothing
        "example",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    }
)
"""Keywords that say nothing of what a valid value is (definitions are read where they are referred to)."""

REFUSALS = MappingProxyType(
    {
        "$dynamicAnchor": "dynamic references are not supported; use $ref",
        "$dynamicRef": "dynamic references are not supported; use $ref",
        "$recursiveAnchor": "dynamic references are not supported; use $ref",
        "$recursiveRef": "dynamic references are not supported; use $ref",
        "additionalItems": "is not supported; write prefixItems and items",
        "contains": "cannot be enforced while a value is written; use prefixItems or items",
        "dependencies": "cannot be enforced while a value is written; use anyOf",
        "dependentRequired": "cannot be enforced while a value is written; use anyOf",
        "dependentSchemas": "cannot be enforced while a value is written; use anyOf",
        "else": "cannot be enforced while a value is written; use anyOf",
        "if": "cannot be enforced while a value is written; use anyOf",
        "maxContains": "cannot be enforced while a value is written",
        "minContains": "cannot be enforced while a value is written",
        "not": "cannot be enforced while a value is written; say what is allowed instead",
        "nullable": "is no keyword of JSON Schema; write null among the types",
        "propertyNames": "is not supported; use patternProperties and additionalProperties false",
        "then": "cannot be enforced while a value is written; use anyOf",
        "unevaluatedItems": "is not supported; use items",
        "unevaluatedProperties": "is not supported; use additionalProperties",
    }
)
"""Keywords that are known and not enforced, with what to do instead."""
