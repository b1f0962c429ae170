"""A program on a pseudo-terminal: type, wait for what it writes, look at what is left."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path
from struct import pack

ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[=>])")


class Terminal:
    """``written`` is everything the program has written so far, escape sequences included."""

    def __init__(self, process: subprocess.Popen[bytes], master: int, slave: int) -> None:
        self.process = process
        self.written = ""
        self._master = master
        self._slave = slave
        self._seen = 0

    @property
    def visible(self) -> str:
        """What was written, without escape sequences and carriage returns."""
        return ESCAPES.sub("", self.written).replace("\r", "")

    @property
    def modes(self) -> list[object]:
        return termios.tcgetattr(self._slave)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def expect(self, text: str, within_s: float = 10.0) -> None:
        """Waits until ``text`` is written after what was expected before."""
        deadline = time.monotonic() + within_s
        while (found := self.written.find(text, self._seen)) < 0:
            assert time.monotonic() < deadline, f"no {text!r} in {self.written[self._seen :]!r}"
            self._read(0.05)
        self._seen = found + len(text)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def exit_status(self, within_s: float = 10.0) -> int:
        deadline = time.monotonic() + within_s
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still runs; wrote {self.written[self._seen :]!r}"
            self._read(0.05)
        self._read(0.0)
        return self.process.returncode

    def _read(self, wait_s: float) -> None:
        while select.select([self._master], [], [], wait_s)[0]:
            self.written += os.read(self._master, 65536).decode()
            wait_s = 0.0


@contextmanager
def terminal(command: Sequence[str], columns: int = 80) -> Iterator[Terminal]:
    """Runs ``command`` with all three streams on a new terminal, which is also its controlling one."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, pack("HHHH", 24, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("on_terminal.py")), *command],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env=environment,
    )
    try:
        yield Terminal(process, master, slave)
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)
