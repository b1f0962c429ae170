"""A process of its own for what reading a constraint may do: take for ever, take all memory, crash.

It answers one question after the other (``reading_worker``) and ends with its parent.

Most questions are answered within milliseconds, at normal priority: beside threads of low priority Linux
was seen to keep others of ours waiting for 30 ms and more. What takes long gives way nevertheless.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from ferrum.constraints.text_pipe import TextPipe, Texts

# -I and -S: nothing of the environment and no site start-up; the parent's own module path comes as arguments.
# Interrupts at the terminal are for the parent.
_START = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "sys.path[:] = sys.argv[1:]; from ferrum.constraints.reading_worker import main; main()"
)
_FULL_SPEED_S = 0.25
_LOWEST_PRIORITY = 19
_SOURCE_FOLDER = str(Path(__file__).parents[2])


class ProcessEnded(Exception):
    """The process is gone and has not answered; the message says how it ended."""


class ReadingProcess:
    """Runs until it is closed; used by one thread at a time. Raises OSError when it cannot be started."""

    def __init__(self) -> None:
        if not sys.executable:
            raise OSError("this Python does not know its own program (sys.executable)")
        path = [_SOURCE_FOLDER, *(each for each in sys.path if each)]
        # No session of its own: Linux may share the processors out by session, whatever the priorities.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _START, *path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._is_fresh = True
        self._pipe = TextPipe(self._process.stdout.fileno(), self._process.stdin.fileno())

    @property
    def process_id(self) -> int:
        return self._process.pid

    def ask(self, question: Texts, timeout_s: float) -> Texts:
        """The answer. Raises TimeoutError or ProcessEnded; then the process can only be closed."""
        deadline = time.monotonic() + timeout_s
        try:
            self._work_where_the_caller_may()
            self._pipe.send(question, deadline)
            if not self._pipe.has_answer(min(_FULL_SPEED_S, timeout_s)):
                self._give_way()
            return self._pipe.receive(deadline)
        except EOFError:
            raise ProcessEnded(_how(self._process.wait())) from None

    @property
    def is_fresh(self) -> bool:
        """False when it gave way to others: nobody may raise its priority again."""
        return self._is_fresh

    @property
    def is_running(self) -> bool:
        """False once it is gone, whoever ended it."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Whatever it is at. Any thread may call it; who asks gets ProcessEnded."""
        self._process.kill()

    def close(self) -> None:
        """Kills it and forgets it."""
        self.kill()
        # Its pipes are closed too.
        with self._process:
            pass

    def _work_where_the_caller_may(self) -> None:
        """Who asks may have borrowed a processor (core/processor_loans.py)."""
        if hasattr(os, "sched_setaffinity"):
            with suppress(OSError):  # It may have ended meanwhile.
                os.sched_setaffinity(self._process.pid, os.sched_getaffinity(0))

    def _give_way(self) -> None:
        self._is_fresh = False
        with suppress(OSError):  # It may have ended meanwhile.
            os.setpriority(os.PRIO_PROCESS, self._process.pid, _LOWEST_PRIORITY)


def _how(code: int) -> str:
    if code >= 0:
        return f"it ended with code {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was ended by signal {-code}"
