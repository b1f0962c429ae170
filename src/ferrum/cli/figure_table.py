"""Tables of figures for a person; no column is cut where stdout is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

# A pipe has no width of its own.
PIPE_WIDTH = 200


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    """The first column is words, the others figures."""
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    print_console().print(table, markup=False)


def print_line(text: str) -> None:
    print_console().print(text, highlight=False, markup=False)


def print_console() -> Console:
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)


def figure(value: float | None, digits: int = 1) -> str:
    """A dash for what was not measured."""
    return "-" if value is None else f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
