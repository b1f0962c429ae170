"""What an answer must be, as a value: a JSON object, a schema's value, a regex, a choice, a grammar, tags.

Says nothing of how it is enforced; ``constraints`` compiles it, and refuses what it cannot enforce.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

from ferrum.core.errors import InvalidConstraint, InvalidRequest

MAX_SOURCE_BYTES = 4 * 1024 * 1024
MAX_DELIMITER_BYTES = 256


class ConstraintKind(StrEnum):
    """What ``Constraint.source`` is written in."""

    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    CHOICE = "choice"
    GRAMMAR = "grammar"
    STRUCTURAL_TAG = "structural_tag"


class JsonSpacing(StrEnum):
    """Blanks between the tokens of a JSON value: a space or an indented new line at most, or none at all."""

    READABLE = "readable"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True)
class Constraint:
    """What the whole answer must be; equal values are compiled once. Build it with one of the class methods.

    source        the schema, list or tags as JSON text; a regex or grammar as it is; empty for JSON_OBJECT
    spacing       of JSON values
    starts_after  text that ends the free part of the answer (a reasoning model's closing tag): what comes
                  before it is not constrained, what comes after it is; None = constrained from the start

    Raises InvalidConstraint for a source or delimiter that is empty, too long or no valid Unicode.
    """

    kind: ConstraintKind
    source: str = ""
    spacing: JsonSpacing = JsonSpacing.READABLE
    starts_after: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.source, str):
            raise InvalidConstraint(f"must be a text, not {type(self.source).__name__}")
        if self.kind is not ConstraintKind.JSON_OBJECT and not self.source:
            raise InvalidConstraint(f"the {self.kind} is empty")
        _require_size("source", self.source, MAX_SOURCE_BYTES)
        if self.starts_after is not None:
            if not isinstance(self.starts_after, str) or not self.starts_after:
                raise InvalidConstraint("starts_after must be a text that is not empty")
            _require_size("starts_after", self.starts_after, MAX_DELIMITER_BYTES)

    @classmethod
    def json_object(cls, spacing: JsonSpacing = JsonSpacing.READABLE) -> Self:
        """Any JSON object."""
        return cls(ConstraintKind.JSON_OBJECT, spacing=spacing)

    @classmethod
    def json_schema(
        cls, schema: Mapping[str, Any] | bool | str, spacing: JsonSpacing = JsonSpacing.READABLE
    ) -> Self:
        """A value of this JSON Schema (a mapping, true or false, or its JSON text)."""
        source = schema if isinstance(schema, str) else _to_json(schema)
        return cls(ConstraintKind.JSON_SCHEMA, source, spacing)

    @classmethod
    def regex(cls, pattern: str) -> Self:
        """A text that this regular expression matches as a whole."""
        return cls(ConstraintKind.REGEX, pattern)

    @classmethod
    def choice(cls, choices: Sequence[str]) -> Self:
        """One of these texts."""
        if isinstance(choices, str) or not isinstance(choices, Sequence) or not choices:
            raise InvalidConstraint("choice must be a list of at least one text")
        for choice in choices:
            if not isinstance(choice, str) or not choice:
                raise InvalidConstraint(f"choice must hold texts that are not empty, not {choice!r}")
        return cls(ConstraintKind.CHOICE, _to_json(list(dict.fromkeys(choices))))

    @classmethod
    def grammar(cls, text: str) -> Self:
        """A sentence of this context-free grammar, in Lark's syntax or in llama.cpp's GBNF."""
        return cls(ConstraintKind.GRAMMAR, text)

    @classmethod
    def structural_tag(cls, tags: Mapping[str, Any] | str) -> Self:
        """Free text in which a trigger begins a tag, whose content is a value of the tag's schema."""
        return cls(ConstraintKind.STRUCTURAL_TAG, tags if isinstance(tags, str) else _to_json(tags))

    @property
    def is_json(self) -> bool:
        """Whether the constrained part is one JSON value."""
        return self.kind in (ConstraintKind.JSON_OBJECT, ConstraintKind.JSON_SCHEMA)

    def after(self, delimiter: str) -> Constraint:
        """The same constraint, from behind ``delimiter`` on."""
        return replace(self, starts_after=delimiter)


def _to_json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidConstraint(f"cannot be written as JSON: {error}") from None


def _require_size(name: str, text: str, limit: int) -> None:
    try:
        num_bytes = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidConstraint(
            f"{name} is not valid Unicode: character {error.start} is half of a surrogate pair"
        ) from None
    if num_bytes > limit:
        raise InvalidConstraint(f"{name} has {num_bytes} bytes, and the limit is {limit}")


def require_constraint(value: object) -> None:
    """Raises InvalidRequest unless ``value`` is a Constraint or None."""
    if value is not None and not isinstance(value, Constraint):
        raise InvalidRequest(f"must be a Constraint, not {type(value).__name__}", param="constraint")
