"""The ``ferrum`` command: finds the sub-command; turns every deliberate error into one line and a status."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ferrum import __version__, environment
from ferrum.cli.lazy_commands import LazyCommands
from ferrum.cli.option_names import in_words_of_options
from ferrum.cli.streams import forgive_unencodable_text, open_missing_streams, say
from ferrum.core.errors import FerrumError, InvalidConfig

app = typer.Typer(cls=LazyCommands, add_completion=False, no_args_is_help=True, rich_markup_mode=None)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"ferrum {__version__}")
        raise typer.Exit


@app.callback()
def ferrum(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Run and serve language models on plain CPUs."""


def main() -> None:
    """The console script. Exits 0, 1 (an error, or the reader of stdout left), 2 (usage) or 130 (Ctrl-C)."""
    environment.keep_libraries_to_one_thread()
    open_missing_streams()
    forgive_unencodable_text()
    sys.exit(_status_of(app))


def _status_of(application: typer.Typer) -> int:
    try:
        application(prog_name="ferrum", standalone_mode=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except InvalidConfig as error:
        say(f"ferrum: error: {in_words_of_options(error)}")
        return 1
    except FerrumError as error:
        # A template refuses in words of its own, which may fill several lines.
        say(f"ferrum: error: {' '.join(str(error).splitlines())}")
        return 1
    except OSError as error:
        # A full disk behind stdout, a folder that may not be read: no bug of ours.
        say(f"ferrum: error: {_what_failed(error)}")
        return 1
    return 0


def _what_failed(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename is not None else reason
