"""The table of commands. A module is imported when its command is asked for, so that each starts fast."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from ferrum.cli.grouped_help import GroupedCommand


@dataclass(frozen=True, slots=True)
class CommandSource:
    """``function`` in ``module`` is the command; its docstring is the command's help."""

    module: str
    function: str


COMMANDS = {
    "run": CommandSource("ferrum.cli.run", "run"),
    "serve": CommandSource("ferrum.cli.serve", "serve"),
    "pull": CommandSource("ferrum.cli.pull", "pull"),
    "list": CommandSource("ferrum.cli.list_models", "list_models"),
    "rm": CommandSource("ferrum.cli.rm", "rm"),
    "plan": CommandSource("ferrum.cli.plan", "plan"),
    "replay-bundle": CommandSource("ferrum.cli.replay_bundle", "replay_bundle"),
    "bench": CommandSource("ferrum.cli.bench", "app"),
}


class LazyCommands(TyperGroup):
    """Finds commands in the table."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        source = COMMANDS.get(cmd_name)
        if source is None:
            return None
        found = getattr(import_module(source.module), source.function)
        if isinstance(found, typer.Typer):
            command = typer.main.get_command(found)
        else:
            single = typer.Typer(add_completion=False, rich_markup_mode=None)
            single.command(cmd_name, cls=GroupedCommand)(found)
            command = typer.main.get_command(single)
        command.name = cmd_name
        return command
