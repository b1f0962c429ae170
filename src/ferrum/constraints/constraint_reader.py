"""Constraints to grammars, and finished answers looked at again, in processes that cannot hurt this one.

What Python does for a schema holds the interpreter's lock, an expression of a few characters may match for
hours, and a crafted one may take all memory: none of that happens here.
"""

from __future__ import annotations

import threading

from ferrum.constraints.reading_process import ProcessEnded, ReadingProcess
from ferrum.constraints.reading_worker import LOOK, READ, Reply
from ferrum.constraints.text_pipe import Texts
from ferrum.core.constraint import Constraint
from ferrum.core.errors import ConstraintTooComplex, InternalError, InvalidConstraint

READ_S = 20.0
"""Longest time for one constraint, on a machine that is busy with other things."""

LOOK_S = 2.0
"""Longest time to look at one answer."""

# What waits for the next question; more of them are started when more threads ask at once.
_MOST_IDLE = 2


class ConstraintReader:
    """Any thread may call it, and waits. Processes are started when they are needed, and again after one was
    killed.

    ``read_s`` and ``look_s``: as READ_S and LOOK_S.
    """

    def __init__(self, read_s: float = READ_S, look_s: float = LOOK_S) -> None:
        self._read_s = read_s
        self._look_s = look_s
        self._lock = threading.Lock()
        self._idle: list[ReadingProcess] = []
        self._busy: set[ReadingProcess] = set()
        self._is_closed = False

    def read(self, constraint: Constraint, delimiter_id: int | None, compare_s: float) -> str:
        """The engine's grammar. ``delimiter_id``: the control token that ``starts_after`` is, if it is one.
        ``compare_s``: time for comparing alternatives.

        Raises InvalidConstraint and ConstraintTooComplex, and InternalError when there can be no process.
        """
        token = None if delimiter_id is None else str(delimiter_id)
        question = [READ, *_texts(constraint), constraint.starts_after, token, str(compare_s)]
        try:
            reply = self._ask(question, self._read_s)
        except TimeoutError:
            raise ConstraintTooComplex(f"reading it takes more than {self._read_s:g} s") from None
        except ProcessEnded as error:
            raise ConstraintTooComplex(f"the process that read it did not survive: {error}") from None
        return _grammar(reply)

    def problem(self, constraint: Constraint, text: str) -> str | None:
        """What is wrong with ``text``, the constrained part of a finished answer; None: nothing.

        Raises InternalError when there can be no process.
        """
        try:
            reply = self._ask([LOOK, *_texts(constraint), text], self._look_s)
        except TimeoutError:
            return f"looking at it again takes more than {self._look_s:g} s"
        except ProcessEnded as error:
            return f"the process that looked at it again did not survive: {error}"
        if reply[0] != Reply.LOOKED_AT:
            raise InternalError(f"an answer could not be looked at again: {reply[1]}")
        return reply[1]

    def warm_up(self) -> None:
        """Starts a process, without waiting for it, so that the first constraint need not wait so long."""
        self._give_back(self._borrow())

    def close(self) -> None:
        """Ends the processes, also those that are at work: who waits for one is told that it ended."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            for process in self._busy:
                process.kill()
        for process in idle:
            process.close()

    def _ask(self, question: Texts, timeout_s: float) -> Texts:
        process = self._borrow()
        try:
            reply = process.ask(question, timeout_s)
        except BaseException:
            self._forget(process)
            raise
        self._give_back(process)
        return reply

    def _borrow(self) -> ReadingProcess:
        with self._lock:
            # One that the system ended while it waited is nobody's fault.
            while self._idle and not self._idle[-1].is_running:
                self._idle.pop().close()
            process = self._idle.pop() if self._idle else _start()
            self._busy.add(process)
            if self._is_closed:
                process.kill()
            return process

    def _give_back(self, process: ReadingProcess) -> None:
        with self._lock:
            is_kept = process.is_fresh and not self._is_closed and len(self._idle) < _MOST_IDLE
            if is_kept:
                self._busy.discard(process)
                self._idle.append(process)
        if not is_kept:
            self._forget(process)

    def _forget(self, process: ReadingProcess) -> None:
        process.close()
        with self._lock:
            self._busy.discard(process)


def _start() -> ReadingProcess:
    try:
        return ReadingProcess()
    except OSError as error:
        raise InternalError(
            f"constraints are read in a process of their own, which cannot be started: {error}; allow this "
            "process to start another one"
        ) from error


def _texts(constraint: Constraint) -> list[str | None]:
    return [str(constraint.kind), constraint.source, str(constraint.spacing)]


def _grammar(reply: Texts) -> str:
    kind, text = reply[0], reply[1] or ""
    match kind:
        case Reply.GRAMMAR:
            return text
        case Reply.REFUSED:
            raise InvalidConstraint(text, reply[2], reply[3])
        case Reply.TOO_COMPLEX:
            raise ConstraintTooComplex(text)
        case _:
            raise InternalError(f"reading a constraint failed: {text}")
