"""From a Constraint to the engine's grammar, whatever kind it is."""

from __future__ import annotations

import json
from typing import Any

from llguidance.gbnf_to_lark import any_to_lark

from ferrum.constraints.json_schema_grammar import Validate, as_grammars, json_schema_grammar, with_blanks
from ferrum.constraints.regular_expressions import UnsupportedRegex, literal_regex, whole_text_regex
from ferrum.constraints.schema_rewriter import Schema
from ferrum.constraints.structural_tags import read_structural_tags, structural_tag_lark
from ferrum.core.constraint import Constraint, ConstraintKind
from ferrum.core.errors import InvalidConstraint

_BODY = "body"
# Between the end of the free part and what is constrained.
_GAP = r"/[ \t\r\n]{0,4}/"


def read_constraint(
    constraint: Constraint, validate: Validate, delimiter_id: int | None, deadline: float
) -> str:
    """The engine's input. ``delimiter_id``: the control token that ``starts_after`` is, where it is one.
    ``deadline`` on time.monotonic.

    Raises InvalidConstraint and ConstraintTooComplex.
    """
    grammars = _grammars(constraint, validate, deadline)
    if constraint.starts_after is not None:
        grammars = [
            _after(constraint.starts_after, delimiter_id),
            {**grammars[0], "name": _BODY},
            *grammars[1:],
        ]
    grammar = as_grammars(*grammars)
    # A schema alone was checked already, which takes long enough to do it once.
    is_checked = constraint.kind is ConstraintKind.JSON_SCHEMA and constraint.starts_after is None
    problem = None if is_checked else validate(grammar)
    if problem is not None:
        raise InvalidConstraint(f"the {constraint.kind} cannot be enforced: {problem}")
    return grammar


def _grammars(constraint: Constraint, validate: Validate, deadline: float) -> list[Schema]:
    source = constraint.source
    match constraint.kind:
        case ConstraintKind.JSON_OBJECT:
            return [with_blanks({"type": "object"}, constraint.spacing)]
        case ConstraintKind.JSON_SCHEMA:
            return [json_schema_grammar(_read_json(source), constraint.spacing, validate, deadline)]
        case ConstraintKind.REGEX:
            try:
                return [_lark(f"start: /{whole_text_regex(source)}/")]
            except UnsupportedRegex as error:
                raise InvalidConstraint(f"the regex {error}") from None
        case ConstraintKind.CHOICE:
            # One terminal, so that thousands of choices are one automaton.
            options = "|".join(map(literal_regex, json.loads(source)))
            return [_lark(f"start: /(?:{options})/")]
        case ConstraintKind.GRAMMAR:
            return [_lark(_read_grammar(source))]
        case ConstraintKind.STRUCTURAL_TAG:
            lark, schemas = structural_tag_lark(read_structural_tags(source))
            named = [
                {
                    **json_schema_grammar(schema, constraint.spacing, validate, deadline),
                    "name": f"schema_{index}",
                }
                for index, schema in enumerate(schemas)
            ]
            return [_lark(lark), *named]


def _after(delimiter: str, delimiter_id: int | None) -> Schema:
    """Anything up to the delimiter, then the body."""
    if delimiter_id is not None:
        return _lark(f"start: /(?s:.*)/ <[{delimiter_id}]> {_GAP} @{_BODY}")
    head = f"head[lazy]: /(?s:.*){literal_regex(delimiter)}/"
    return _lark(f"start: head {_GAP} @{_BODY}\n{head}")


def _lark(text: str) -> Schema:
    return {"lark_grammar": text}


def _read_json(source: str) -> Any:
    try:
        return json.loads(source, parse_constant=_refuse_constant)
    except RecursionError:
        raise InvalidConstraint("the schema is nested too deep") from None
    except ValueError as error:
        raise InvalidConstraint(f"the schema is no JSON: {error}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _read_grammar(source: str) -> str:
    """Lark as it is, GBNF translated."""
    try:
        return str(any_to_lark(source))
    except RecursionError:
        raise InvalidConstraint("the grammar is nested too deep") from None
    except Exception as error:  # The translator's errors share no type.
        raise InvalidConstraint(f"the grammar cannot be read: {' '.join(str(error).split())}") from None
