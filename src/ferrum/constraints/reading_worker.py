"""What the process of ``ReadingProcess`` does: reads constraints and looks at answers, within limits.

It imports neither numpy nor the native runtime, and nothing that its parent has not imported.
"""

from __future__ import annotations

import os
import resource
import time
from collections import OrderedDict
from enum import StrEnum
from typing import TYPE_CHECKING

from ferrum.constraints.text_pipe import TextPipe, Texts
from ferrum.core.constraint import Constraint, ConstraintKind, JsonSpacing
from ferrum.core.errors import ConstraintTooComplex, InvalidConstraint

if TYPE_CHECKING:
    from ferrum.constraints.answer_check import AnswerCheck

READ, LOOK = "read", "look"

MEMORY_BYTES = 512 << 20
"""Address space of the process; it has 37 MiB when it starts."""

# It may outlive a parent that was killed while it is at work, but not by more processor time than this.
_JOB_CPU_S = 30
_KEPT_CHECKS = 32


class Reply(StrEnum):
    """What an answer begins with; in brackets, what follows."""

    GRAMMAR = "grammar"  # the grammar
    REFUSED = "refused"  # problem, keyword, pointer
    TOO_COMPLEX = "too_complex"  # limit
    FAILED = "failed"  # what went wrong
    LOOKED_AT = "looked_at"  # problem, None: there is none


class ReadingWorker:
    """Answers questions: [READ, kind, source, spacing, starts_after, delimiter id, seconds to compare] and
    [LOOK, kind, source, spacing, text]. Keeps the last few checks.
    """

    def __init__(self) -> None:
        self._checks: OrderedDict[Constraint, AnswerCheck] = OrderedDict()

    def answer(self, question: Texts) -> Texts:
        try:
            task, kind, source, spacing = (each or "" for each in question[:4])
            constraint = Constraint(ConstraintKind(kind), source, JsonSpacing(spacing))
            if task == READ:
                return self._read(constraint, question[4], question[5], float(question[6] or 0))
            return [Reply.LOOKED_AT, self._check_for(constraint).problem(question[4] or "")]
        except InvalidConstraint as error:
            return [Reply.REFUSED, error.reason, error.keyword, error.pointer]
        except ConstraintTooComplex as error:
            return [Reply.TOO_COMPLEX, error.limit]
        except RecursionError:
            return [Reply.REFUSED, f"the {kind} is nested too deep", None, None]
        except MemoryError:
            return [Reply.TOO_COMPLEX, f"reading it takes more than {MEMORY_BYTES >> 20} MiB"]
        except Exception as error:
            return [Reply.FAILED, repr(error)]

    def _read(
        self, constraint: Constraint, starts_after: str | None, delimiter_id: str | None, compare_s: float
    ) -> Texts:
        from ferrum.constraints.grammar_check import grammar_problem, require_manageable
        from ferrum.constraints.grammar_source import read_constraint

        whole = constraint if starts_after is None else constraint.after(starts_after)
        token_id = None if delimiter_id is None else int(delimiter_id)
        grammar = read_constraint(whole, grammar_problem, token_id, time.monotonic() + compare_s)
        require_manageable(grammar)
        self._check_for(constraint)  # Before any token, should there be something wrong with it.
        return [Reply.GRAMMAR, grammar]

    def _check_for(self, constraint: Constraint) -> AnswerCheck:
        from ferrum.constraints.answer_check import check_for

        check = self._checks.get(constraint)
        if check is None:
            check = self._checks[constraint] = check_for(constraint)
            if len(self._checks) > _KEPT_CHECKS:
                self._checks.popitem(last=False)
        self._checks.move_to_end(constraint)
        return check


def main() -> None:
    """Answers until the parent is gone."""
    resource.setrlimit(resource.RLIMIT_AS, _at_most(resource.RLIMIT_AS, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pipe = TextPipe(os.dup(0), os.dup(1))
    os.dup2(2, 1)  # Whatever prints must not get among the answers.
    worker = ReadingWorker()
    # What most questions need, so that the first one finds it.
    import ferrum.constraints.answer_check
    import ferrum.constraints.grammar_check
    import ferrum.constraints.grammar_source  # noqa: F401

    while True:
        try:
            question = pipe.receive()
            _limit_next_job()
            pipe.send(worker.answer(question))
        except EOFError:
            return


def _limit_next_job() -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    until = int(usage.ru_utime + usage.ru_stime) + 1 + _JOB_CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, _at_most(resource.RLIMIT_CPU, until))


def _at_most(limit: int, value: int) -> tuple[int, int]:
    """The soft limit lowered to ``value``, the hard one as it is."""
    hard = resource.getrlimit(limit)[1]
    return (value if hard == resource.RLIM_INFINITY else min(value, hard), hard)
