"""A JSON Schema as a grammar: rewritten, checked, with blanks bounded; refusals name keyword and place."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from itertools import combinations
from types import MappingProxyType
from typing import Any

from ferrum.constraints.finite_values import has_finite_value
from ferrum.constraints.schema_rewriter import Schema, SchemaRewriter
from ferrum.core.constraint import JsonSpacing
from ferrum.core.errors import ConstraintTooComplex, InvalidConstraint

# At each place where JSON allows blanks: nothing, one space, or a new line with some indentation. Without a
# bound some models write blanks until their tokens are used up.
_BLANKS: Mapping[JsonSpacing, Schema] = MappingProxyType(
    {
        JsonSpacing.READABLE: {"whitespace_pattern": r" |\r?\n[ \t]{0,16}"},
        JsonSpacing.COMPACT: {"whitespace_flexible": False},
    }
)
# With \u a declared name could be spelled so that it counts as another one.
_ESCAPES = 'nrbtf\\"'
_UNSATISFIABLE = "Unsatisfiable schema"

Validate = Callable[[str], str | None]
"""A grammar to what the engine has against it; None: nothing."""


def json_schema_grammar(schema: Any, spacing: JsonSpacing, validate: Validate, deadline: float) -> Schema:
    """One entry of the engine's "grammars". ``deadline`` on time.monotonic.

    Raises InvalidConstraint naming keyword and pointer, and ConstraintTooComplex.
    """
    rewriter = SchemaRewriter(schema)
    rewritten = rewriter.rewrite()
    if not has_finite_value(rewritten):
        raise InvalidConstraint(
            "describes only values that never end: a $ref leads back to itself", "$ref", ""
        )
    _OneOfs(rewritten, rewriter.place_of, validate, deadline).decide()
    grammar = with_blanks(rewritten, spacing)
    problem = validate(as_grammars(grammar))
    if problem is not None:
        raise _located(schema, spacing, validate, deadline, problem)
    return grammar


def with_blanks(schema: Schema, spacing: JsonSpacing) -> Schema:
    """``schema`` as the engine's grammar, with what may stand between its tokens."""
    options = {**_BLANKS[spacing], "json_allowed_escapes": _ESCAPES}
    return {"json_schema": {**schema, "x-guidance": options}}


def as_grammars(*grammars: Schema) -> str:
    """The engine's input: the first grammar is the start, the others are referred to by name."""
    return json.dumps({"grammars": list(grammars)}, ensure_ascii=False)


class _OneOfs:
    """Turns every oneOf whose alternatives exclude each other into anyOf, in place."""

    def __init__(
        self, root: Schema, place_of: Callable[[list[Schema]], str], validate: Validate, deadline: float
    ) -> None:
        self._root = root
        self._place_of = place_of
        self._definitions = root.get("$defs", {})
        self._validate = validate
        self._deadline = deadline

    def decide(self) -> None:
        """Raises InvalidConstraint for alternatives that may both be valid."""
        self._visit(self._root)

    def _visit(self, node: Any) -> None:
        if isinstance(node, list):
            for each in node:
                self._visit(each)
        if not isinstance(node, dict):
            return
        for keyword, each in node.items():
            if keyword not in ("enum", "const"):
                self._visit(each)
        options = node.get("oneOf")
        if isinstance(options, list):
            for first, second in combinations(range(len(options)), 2):
                self._require_disjoint(options, first, second)
            del node["oneOf"]
            if "anyOf" in node:
                node["allOf"] = [*node.get("allOf", []), {"anyOf": options}]
            else:
                node["anyOf"] = options

    def _require_disjoint(self, options: list[Schema], first: int, second: int) -> None:
        if time.monotonic() > self._deadline:
            raise ConstraintTooComplex("its oneOf has too many alternatives to compare")
        both = {"allOf": [options[first], options[second]], "$defs": self._definitions}
        problem = self._validate(as_grammars(with_blanks(both, JsonSpacing.COMPACT)))
        if problem is None or _UNSATISFIABLE not in problem:
            raise InvalidConstraint(
                f"cannot be enforced: a value might be valid by both alternatives {first} and {second}; "
                "use anyOf, or give each a required property with a const of its own",
                "oneOf",
                self._place_of(options),
            )


def _located(
    schema: Any, spacing: JsonSpacing, validate: Validate, deadline: float, problem: str
) -> InvalidConstraint:
    """The refusal, at the deepest place that is refused by itself as well."""
    pointer, found = "", schema
    is_deeper = True
    while is_deeper and time.monotonic() < deadline:
        is_deeper = False
        for step, below in _subschemas(found):
            own_problem = _problem_of(schema, below, spacing, validate)
            if own_problem is not None:
                pointer, found, problem, is_deeper = pointer + step, below, own_problem, True
                break
    keyword = _keyword(schema, found, spacing, validate, problem)
    return InvalidConstraint(f"cannot be enforced: {problem}", keyword, pointer)


def _problem_of(root: Any, schema: Any, spacing: JsonSpacing, validate: Validate) -> str | None:
    definitions = {key: root[key] for key in ("$defs", "definitions") if key in root and root is not schema}
    alone = {**schema, **definitions} if isinstance(schema, dict) else schema
    try:
        rewritten = SchemaRewriter(alone).rewrite()
    except InvalidConstraint:
        return None  # It refers to what is not among the definitions.
    return validate(as_grammars(with_blanks(rewritten, spacing)))


def _keyword(root: Any, schema: Any, spacing: JsonSpacing, validate: Validate, problem: str) -> str | None:
    """The keyword without which the schema would be accepted, one that the problem names if there is one."""
    if not isinstance(schema, dict):
        return None
    for keyword in sorted(schema, key=lambda each: (each not in problem, each == "type")):
        less = {other: value for other, value in schema.items() if other != keyword}
        if _problem_of(root, less, spacing, validate) is None:
            return str(keyword)
    return None


def _subschemas(schema: Any) -> list[tuple[str, Any]]:
    """(relative pointer, schema) of what is directly below."""
    if not isinstance(schema, dict):
        return []
    found: list[tuple[str, Any]] = []
    for keyword in ("properties", "patternProperties", "$defs", "definitions"):
        for name, each in schema.get(keyword, {}).items():
            escaped = name.replace("~", "~0").replace("/", "~1")
            found.append((f"/{keyword}/{escaped}", each))
    for keyword in ("anyOf", "allOf", "prefixItems"):
        found += [(f"/{keyword}/{index}", each) for index, each in enumerate(schema.get(keyword, ()))]
    return found + [
        (f"/{keyword}", schema[keyword]) for keyword in ("items", "additionalProperties") if keyword in schema
    ]
