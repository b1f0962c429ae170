"""Options that say what an answer must be."""

from __future__ import annotations

from pathlib import Path

from ferrum.cli.model_options import read_text_file
from ferrum.core.constraint import Constraint
from ferrum.core.errors import InvalidConfig


def read_constraint(json_schema: Path | None, grammar: Path | None) -> Constraint | None:
    """The constraint in the file that one of the options names.

    Raises InvalidConfig for both of them or a file that cannot be read, InvalidConstraint for an empty one.
    """
    if json_schema is not None and grammar is not None:
        raise InvalidConfig("--grammar", "cannot be used together with --json-schema")
    if json_schema is not None:
        return Constraint.json_schema(read_text_file("--json-schema", json_schema))
    return None if grammar is None else Constraint.grammar(read_text_file("--grammar", grammar))
