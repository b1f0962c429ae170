"""What a person types at the prompt: messages, commands, Ctrl-C and the end of input.

A paste is literal: its lines stay one message, and none of them is a command. ``\\`` at the end of a typed
line, or Alt-Enter, continues the message on the next line.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum

from prompt_toolkit import PromptSession
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.output.defaults import create_output
from prompt_toolkit.output.vt100 import Vt100_Output

PROMPT = ">>> "


class Command(StrEnum):
    """The commands, as they are typed."""

    CLEAR = "/clear"
    BYE = "/bye"
    HELP = "/help"


@dataclass(frozen=True, slots=True)
class Typed:
    """A message, exactly as typed or pasted."""

    text: str


@dataclass(frozen=True, slots=True)
class UnknownCommand:
    """A typed line that looks like a command and is none."""

    name: str


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Ctrl-C at the prompt; ``had_text``: it threw a half-written message away."""

    had_text: bool


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """Ctrl-D, or the terminal went away."""


Entry = Typed | Command | UnknownCommand | Interrupted | EndOfInput


def read_entry(text: str) -> Entry:
    """What a typed line means; only its first line can be a command, and only when there is no other."""
    stripped = text.strip()
    if not stripped.startswith("/") or "\n" in stripped:
        return Typed(text)
    try:
        return Command(stripped)
    except ValueError:
        name = stripped[1:]
        return UnknownCommand(stripped) if name.isascii() and name.isalpha() else Typed(text)


class LineEditor:
    """Reads entries from the terminal. Used by one task; mutates its own history and paste flag."""

    def __init__(self, source: Input | None = None, output: Output | None = None) -> None:
        self._has_paste = False
        self._session: PromptSession[str] = PromptSession(
            key_bindings=self._bindings(),
            input=source,
            output=output or _terminal_output(),
            color_depth=ColorDepth.DEPTH_1_BIT,
        )
        self._session.default_buffer.on_text_changed += lambda buffer: self._note_text(buffer.text)

    async def read(self) -> Entry:
        """The next entry."""
        self._has_paste = False
        try:
            text = await self._session.prompt_async(PROMPT)
        except KeyboardInterrupt:
            return Interrupted(had_text=bool(self._session.default_buffer.text))
        except EOFError:
            return EndOfInput()
        return Typed(text) if self._has_paste else read_entry(text)

    def _note_text(self, text: str) -> None:
        if not text:
            self._has_paste = False

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()

        @bindings.add(Keys.BracketedPaste)
        def paste(event: KeyPressEvent) -> None:
            text = event.data.replace("\r\n", "\n").replace("\r", "\n")
            event.current_buffer.insert_text(text)
            self._has_paste = self._has_paste or bool(text)

        @bindings.add("escape", "enter")
        def start_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @bindings.add("enter")
        def submit(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if (
                buffer.text.endswith("\\")
                and buffer.cursor_position == len(buffer.text)
                and not self._has_paste
            ):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                buffer.validate_and_handle()

        return bindings


def _terminal_output() -> Output:
    """stderr where it is a terminal: stdout belongs to the answer."""
    output = create_output(stdout=sys.stderr if sys.stderr.isatty() else sys.stdout)
    if isinstance(output, Vt100_Output):
        # The answer to a cursor query could arrive after the prompt has ended, and be taken for typing.
        output.enable_cpr = False
    return output
