"""Figures for programs, in a file beside the table on stdout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ferrum.core.errors import InvalidConfig

JsonOption = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="File for the figures as JSON.")
]


def write_json(path: Path, figures: object) -> None:
    """Raises InvalidConfig when the file cannot be written."""
    write_text(path, json.dumps(figures, indent=2) + "\n", "--json")


def write_text(path: Path, text: str, option: str) -> None:
    """Raises InvalidConfig naming ``option`` when the file cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidConfig(option, f"cannot write {path}: {error.strerror}") from None


def require_writable(path: Path | None, option: str) -> None:
    """Before minutes of measuring. Raises InvalidConfig when ``path`` cannot become a file."""
    if path is None:
        return
    if path.is_dir() or not path.parent.is_dir():
        raise InvalidConfig(
            option, f"cannot write {path}: {'a folder' if path.is_dir() else 'no such folder'}"
        )
    is_new = not path.exists()
    if not is_new and not path.is_file():
        return  # A pipe or a terminal: to open it would mean something to who reads there.
    try:
        path.open("ab").close()
        if is_new:
            path.unlink()
    except OSError as error:
        raise InvalidConfig(option, f"cannot write {path}: {error.strerror}") from None
