"""The standard streams, made safe: no text can make printing fail, no byte can make reading fail."""

from __future__ import annotations

import contextlib
import io
import os
import select
import stat
import sys
import time


def open_missing_streams() -> None:
    """A stream that was closed before we started becomes the null device, as ``print`` treats it.

    Otherwise the next file we open would get its number, and what is printed would end up in there.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def forgive_unencodable_text() -> None:
    """From now on a character that a stream's encoding lacks is printed as "?" instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def argument_text(text: str) -> str:
    """An argument as its author meant it: UTF-8, even where the locale made Python read bytes one by one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return os.fsencode(text).decode(errors="replace")
    return text


def say(text: str) -> None:
    """One line for the person at the terminal: on stderr, because stdout belongs to the answer."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def is_interactive() -> bool:
    """Whether a person types on stdin."""
    return sys.stdin is not None and sys.stdin.isatty()


def read_piped_text() -> str:
    """All of stdin. Bytes that are not UTF-8 become U+FFFD, with a note on stderr."""
    return _decode(sys.stdin.buffer.read()) if sys.stdin is not None else ""


def read_piped_text_within(seconds: float, note: str) -> str:
    """All of stdin if its first byte or its end comes within ``seconds``; otherwise says ``note``: "".

    A script's stdin is often an open pipe that nobody will ever write to.
    """
    if sys.stdin is None:
        return ""
    mode = os.fstat(sys.stdin.fileno()).st_mode
    is_silent_kind = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
    if is_silent_kind and not select.select([sys.stdin.fileno()], [], [], seconds)[0]:
        say(note)
        return ""
    return read_piped_text()


def _decode(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        say(f"ferrum: note: stdin is not UTF-8 (byte {error.start}); such bytes are read as U+FFFD")
        return data.decode(errors="replace")


def discard_typed_input() -> None:
    """Throws away what was typed or pasted and not read, so that it does not reach the shell as commands."""
    if not is_interactive():
        return
    import termios

    # A paste arrives in pieces: what comes within a moment still belongs to it.
    deadline = time.monotonic() + 0.2
    with contextlib.suppress(termios.error):
        while time.monotonic() < deadline:
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
            time.sleep(0.02)
