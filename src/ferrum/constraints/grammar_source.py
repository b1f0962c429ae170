"""From a Constraint to the engine's grammar and the check of the finished answer, whatever kind it is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from llguidance.gbnf_to_lark import any_to_lark

from ferrum.constraints.answer_check import (
    AnswerCheck,
    AnyText,
    ChoiceCheck,
    JsonObjectCheck,
    JsonSchemaCheck,
    RegexCheck,
)
from ferrum.constraints.json_schema_grammar import Validate, as_grammars, json_schema_grammar, with_blanks
from ferrum.constraints.regular_expressions import UnsupportedRegex, literal_regex, whole_text_regex
from ferrum.constraints.schema_rewriter import Schema
from ferrum.constraints.structural_tags import read_structural_tags, structural_tag_lark
from ferrum.core.constraint import Constraint, ConstraintKind
from ferrum.core.errors import InvalidConstraint

_BODY = "body"
# Between the end of the free part and what is constrained.
_GAP = r"/[ \t\r\n]{0,4}/"


@dataclass(frozen=True, slots=True)
class GrammarSource:
    """``grammar`` is the engine's input; ``check`` looks at the constrained part of the finished answer."""

    grammar: str
    check: AnswerCheck


def read_constraint(
    constraint: Constraint, validate: Validate, delimiter_id: int | None, deadline: float
) -> GrammarSource:
    """``delimiter_id``: the control token that ``starts_after`` is, where it is one. ``deadline`` on
    time.monotonic.

    Raises InvalidConstraint and ConstraintTooComplex.
    """
    grammars, check = _grammars(constraint, validate, deadline)
    if constraint.starts_after is not None:
        grammars = [
            _after(constraint.starts_after, delimiter_id),
            {**grammars[0], "name": _BODY},
            *grammars[1:],
        ]
    grammar = as_grammars(*grammars)
    problem = validate(grammar)
    if problem is not None:
        raise InvalidConstraint(f"the {constraint.kind} cannot be enforced: {problem}")
    return GrammarSource(grammar, check)


def _grammars(
    constraint: Constraint, validate: Validate, deadline: float
) -> tuple[list[Schema], AnswerCheck]:
    source = constraint.source
    match constraint.kind:
        case ConstraintKind.JSON_OBJECT:
            return [with_blanks({"type": "object"}, constraint.spacing)], JsonObjectCheck()
        case ConstraintKind.JSON_SCHEMA:
            schema = _read_json(source)
            grammar = json_schema_grammar(schema, constraint.spacing, validate, deadline)
            return [grammar], JsonSchemaCheck(schema)
        case ConstraintKind.REGEX:
            try:
                return [_lark(f"start: /{whole_text_regex(source)}/")], RegexCheck(source)
            except UnsupportedRegex as error:
                raise InvalidConstraint(f"the regex {error}") from None
        case ConstraintKind.CHOICE:
            choices = json.loads(source)
            # One terminal, so that thousands of choices are one automaton.
            options = "|".join(map(literal_regex, choices))
            return [_lark(f"start: /(?:{options})/")], ChoiceCheck(choices)
        case ConstraintKind.GRAMMAR:
            return [_lark(_read_grammar(source))], AnyText()
        case ConstraintKind.STRUCTURAL_TAG:
            lark, schemas = structural_tag_lark(read_structural_tags(source))
            named = [
                {
                    **json_schema_grammar(schema, constraint.spacing, validate, deadline),
                    "name": f"schema_{index}",
                }
                for index, schema in enumerate(schemas)
            ]
            return [_lark(lark), *named], AnyText()


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
