"""Structural tags: free text in which a trigger begins a tag that must then be written as it is described.

The wire form is that of vLLM and xgrammar: ``{"type": "structural_tag", "triggers": ["<function="],
"structures": [{"begin": "<function=search>", "schema": {...}, "end": "</function>"}]}``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ferrum.core.errors import InvalidConstraint

MAX_TAGS = 200


@dataclass(frozen=True, slots=True)
class Tag:
    """``begin`` starts with one of the triggers; then comes a value of ``schema``, then ``end``."""

    begin: str
    schema: Any
    end: str


@dataclass(frozen=True, slots=True)
class StructuralTags:
    """Tags by their trigger, each tag under the longest that it starts with."""

    tags_of: Mapping[str, tuple[Tag, ...]]


def read_structural_tags(source: str) -> StructuralTags:
    """Raises InvalidConstraint for tags that are not written as above."""
    try:
        value = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise InvalidConstraint(f"structural_tag is no JSON: {error}") from None
    if not isinstance(value, dict) or "structures" not in value or "triggers" not in value:
        raise InvalidConstraint(
            'structural_tag must be an object with "structures" and "triggers"; other forms are not supported'
        )
    unknown = value.keys() - {"type", "structures", "triggers"}
    if unknown:
        raise InvalidConstraint(f"structural_tag has the unknown field {min(unknown)!r}")
    triggers = _texts(value["triggers"], "triggers")
    tags = value["structures"]
    if not isinstance(tags, list) or not 0 < len(tags) <= MAX_TAGS:
        raise InvalidConstraint(f"structures must be a list of 1 to {MAX_TAGS} tags")
    tags_of: dict[str, list[Tag]] = {}
    for index, each in enumerate(tags):
        tag = _tag(each, index)
        fitting = [trigger for trigger in triggers if tag.begin.startswith(trigger)]
        if not fitting:
            raise InvalidConstraint(f"structures[{index}]: no trigger is the start of begin {tag.begin!r}")
        tags_of.setdefault(max(fitting, key=len), []).append(tag)
    return StructuralTags({trigger: tuple(each) for trigger, each in tags_of.items()})


def structural_tag_lark(tags: StructuralTags) -> tuple[str, list[Any]]:
    """The grammar that refers to the tags' schemas as @schema_0, @schema_1, ...; and those schemas."""
    schemas: list[Any] = []
    rules = [f"start: ({' | '.join(f'tag_{k}' for k in range(len(tags.tags_of)))})* TEXT", "TEXT: /(?s:.*)/"]
    for k, (trigger, listed) in enumerate(tags.tags_of.items()):
        options = []
        for tag in listed:
            parts = [_text(tag.begin[len(trigger) :]), f"@schema_{len(schemas)}", _text(tag.end)]
            options.append(" ".join(part for part in parts if part))
            schemas.append(tag.schema)
        # Lazy: it ends with the first trigger in the text.
        rules += [f"head_{k}[lazy]: TEXT {_text(trigger)}", f"tag_{k}: head_{k} ({' | '.join(options)})"]
    return "\n".join(rules), schemas


def _tag(value: Any, index: int) -> Tag:
    if not isinstance(value, dict) or not {"begin", "schema", "end"} <= value.keys():
        raise InvalidConstraint(f"structures[{index}] must be an object with begin, schema and end")
    begin, end = value["begin"], value["end"]
    if not isinstance(begin, str) or not begin or not isinstance(end, str):
        raise InvalidConstraint(f"structures[{index}]: begin and end must be texts, and begin not empty")
    return Tag(begin, value["schema"], end)


def _texts(value: Any, name: str) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(each, str) and each for each in value):
        raise InvalidConstraint(f"{name} must be a list of texts that are not empty")
    return value


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""
