"""Whether a finished answer is what was asked for: a question that other code answers, elsewhere."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from ferrum.core.errors import AnswerCutByStop, BrokenConstraint, FerrumError, InternalError


@dataclass(frozen=True, slots=True)
class Look:
    """``found`` will be what is wrong with the answer, None: nothing. ``cut_by`` is the stop string that
    ended it, if one did.
    """

    found: Future[str | None]
    cut_by: str | None = None

    def problem(self, request_id: str) -> FerrumError | None:
        """Once ``found`` is done: why the answer may not be handed out."""
        try:
            problem = self.found.result(0)
        except FerrumError as error:
            return error
        except BaseException as error:  # A look that was given up, too.
            return InternalError(f"the answer could not be looked at again: {error!r}")
        if problem is None:
            return None
        if self.cut_by is not None:
            return AnswerCutByStop(request_id, self.cut_by, problem)
        return BrokenConstraint(request_id, problem)
