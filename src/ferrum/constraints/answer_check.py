"""The second look at a finished answer, by other code than wrote it. Knows no tokens."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from functools import cache
from typing import Any, Protocol

from jsonschema import FormatChecker, ValidationError, validators
from jsonschema.protocols import Validator

from ferrum.constraints.regular_expressions import python_search_regex, python_whole_text_regex
from ferrum.constraints.schema_walk import change_schemas
from ferrum.constraints.string_formats import FORMATS
from ferrum.core.constraint import Constraint, ConstraintKind


class AnswerCheck(Protocol):
    """Says what is wrong with a finished answer; None: nothing."""

    def problem(self, text: str) -> str | None: ...


def check_for(constraint: Constraint) -> AnswerCheck:
    """What looks at the constrained part of an answer."""
    source = constraint.source
    match constraint.kind:
        case ConstraintKind.JSON_OBJECT:
            return JsonObjectCheck()
        case ConstraintKind.JSON_SCHEMA:
            return JsonSchemaCheck(json.loads(source))
        case ConstraintKind.REGEX:
            return RegexCheck(source)
        case ConstraintKind.CHOICE:
            return ChoiceCheck(json.loads(source))
        case ConstraintKind.GRAMMAR | ConstraintKind.STRUCTURAL_TAG:
            return AnyText()


class AnyText:
    """For grammars and tags, where the grammar engine alone knows."""

    def problem(self, text: str) -> str | None:
        return None


class JsonObjectCheck:
    """One JSON object."""

    def problem(self, text: str) -> str | None:
        value = _read(text)
        if isinstance(value, _Unreadable):
            return value.problem
        return None if isinstance(value, dict) else "it is no JSON object"


class RegexCheck:
    """A text that Python's ``re`` matches as a whole."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(python_whole_text_regex(pattern))

    def problem(self, text: str) -> str | None:
        return None if self._pattern.fullmatch(text) else "the expression does not match it"


class ChoiceCheck:
    """One of the texts."""

    def __init__(self, choices: list[str]) -> None:
        self._choices = frozenset(choices)

    def problem(self, text: str) -> str | None:
        return None if text in self._choices else "it is none of the choices"


class JsonSchemaCheck:
    """A JSON value that ``jsonschema`` finds valid, formats included; its schema can be enforced."""

    def __init__(self, schema: Any) -> None:
        self._validator = _validator(schema)

    def problem(self, text: str) -> str | None:
        value = _read(text)
        if isinstance(value, _Unreadable):
            return value.problem
        error = next(iter(self._validator.iter_errors(value)), None)
        return None if error is None else f"{error.json_path}: {error.message[:200]}"


class _Unreadable:
    def __init__(self, problem: str) -> None:
        self.problem = problem


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return _Unreadable(f"it is no JSON: {error}")


def _validator(schema: Any) -> Validator:
    kind = validators.validator_for(schema, default=validators.Draft202012Validator)
    made: Validator = _exact(kind)(
        change_schemas(schema, _use_python_regexes), format_checker=_format_checker()
    )
    return made


@cache
def _exact(kind: type[Validator]) -> Any:
    extend: Any = validators.extend  # Not typed.
    return extend(kind, {"multipleOf": _multiple_of})


def _use_python_regexes(schema: dict[str, Any]) -> None:
    if "pattern" in schema:
        schema["pattern"] = python_search_regex(schema["pattern"])
    if "patternProperties" in schema:
        schema["patternProperties"] = {
            python_search_regex(pattern): each for pattern, each in schema["patternProperties"].items()
        }


def _multiple_of(validator: Any, divisor: Any, instance: Any, schema: Any) -> Any:
    """In decimal digits, as they stand in the text: 0.3 is a multiple of 0.1."""
    if validator.is_type(instance, "number") and Decimal(repr(instance)) % Decimal(repr(divisor)):
        yield ValidationError(f"{instance!r} is not a multiple of {divisor!r}")


@cache
def _format_checker() -> FormatChecker:
    checker = FormatChecker(formats=())
    for name, pattern in FORMATS.items():
        checker.checkers[name] = (_matcher(pattern), ())
    return checker


def _matcher(pattern: str) -> Any:
    compiled = re.compile(pattern)
    return lambda value: not isinstance(value, str) or compiled.fullmatch(value) is not None
