"""Help in groups: options stand under the name of their panel, as written in the command's signature."""

from __future__ import annotations

from typing import Any

from typer.core import TyperArgument, TyperCommand


class GroupedCommand(TyperCommand):
    """A command with many options. Groups come in the order of their first options."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            usual = "Arguments" if isinstance(parameter, TyperArgument) else "Options"
            if record is not None:
                groups.setdefault(getattr(parameter, "rich_help_panel", None) or usual, []).append(record)
        for name, records in groups.items():
            with formatter.section(name):
                formatter.write_dl(records)
