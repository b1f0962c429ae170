"""Runs one step so that a request which breaks it fails alone."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ferrum.core.errors import FerrumError, InternalError
from ferrum.core.events import Observers, StepFailed
from ferrum.core.step import SampledToken, ScoredTokens, SequencePart, StepPlan, StepResult
from ferrum.execution.executor import Executor
from ferrum.runtimes.protocol import StepAborted

_log = logging.getLogger("ferrum.engine")


class StepOutcome(NamedTuple):
    """The parts that were computed with the tokens chosen for them, and the requests that failed.

    Tokens behind a wrong draft are not among them: they follow what nobody chose. A part in neither was given
    up (an aborted step) and is planned again. ``is_whole``: one step computed all.
    """

    parts: tuple[SequencePart, ...]
    tokens: tuple[SampledToken, ...]
    scored: tuple[ScoredTokens, ...] = ()
    failures: Mapping[str, FerrumError] = MappingProxyType({})
    is_whole: bool = False


class StepRunner:
    """Calls the executor. A step that raises is repeated part by part, once: since no result depends on who
    shares a step, the healthy parts come out the same, and only those that raise alone, and without the
    tokens that were drafted for them, are failed: a guess must not cost an answer, nor must a device that
    stumbled, whether a request has company or not.
    """

    def __init__(self, executor: Executor, observers: Observers) -> None:
        self._executor = executor
        self._observers = observers

    def run(self, plan: StepPlan) -> StepOutcome:
        try:
            scored: list[ScoredTokens] = []
            tokens = self._execute(plan, scored)
            return StepOutcome(plan.parts, tokens, tuple(scored), is_whole=True)
        except StepAborted:
            return StepOutcome((), ())
        except Exception as error:
            _log.exception("a step of %d requests failed", len(plan.parts))
            outcome = self._run_one_by_one(plan)
            self._observers.on(StepFailed(str(error), len(plan.parts), len(outcome.failures)))
            return outcome

    def _run_one_by_one(self, plan: StepPlan) -> StepOutcome:
        parts: list[SequencePart] = []
        tokens: list[SampledToken] = []
        scored: list[ScoredTokens] = []
        failures: dict[str, FerrumError] = {}
        for part in map(_without_drafts, plan.parts):
            try:
                tokens += self._execute(StepPlan((part,)), scored)
                parts.append(part)
            except StepAborted:
                break
            except Exception as own_error:
                failures[part.request_id] = _as_failure(own_error)
        return StepOutcome(tuple(parts), tuple(tokens), tuple(scored), failures)

    def _execute(self, plan: StepPlan, scored: list[ScoredTokens]) -> tuple[SampledToken, ...]:
        """The chosen tokens; those that were scored are added to ``scored``."""
        result = self._executor.execute(plan)
        _check_answers(plan, result)
        scored += result.scored
        return _without_wrong_drafts(plan, result.tokens)


def _check_answers(plan: StepPlan, result: StepResult) -> None:
    asked = [part.request_id for part in plan.parts for _ in part.choices]
    answered = [token.request_id for token in result.tokens]
    if asked != answered:
        raise InternalError(
            f"the executor was asked to choose tokens for {asked} and answered for {answered}"
        )
    wanted = [(part.request_id, len(part.scored.token_ids)) for part in plan.parts if part.scored is not None]
    found = [(scored.request_id, len(scored.rows)) for scored in result.scored]
    if wanted != found:
        raise InternalError(f"the executor was asked to score tokens for {wanted} and answered for {found}")


def _without_wrong_drafts(plan: StepPlan, tokens: tuple[SampledToken, ...]) -> tuple[SampledToken, ...]:
    """A token counts when every draft before it is the token that was chosen in its place."""
    if not [part for part in plan.parts if part.num_drafts]:
        return tokens
    kept: list[SampledToken] = []
    row = 0
    for part in plan.parts:
        chosen = tokens[row : row + len(part.choices)]
        row += len(part.choices)
        drafts = part.token_ids[len(part.token_ids) - part.num_drafts :]
        num_right = 0
        while num_right < len(drafts) and drafts[num_right] == chosen[num_right].token_id:
            num_right += 1
        kept += chosen[: num_right + 1] if drafts else chosen
    return tuple(kept)


def _without_drafts(part: SequencePart) -> SequencePart:
    if not part.num_drafts:
        return part
    num_known = len(part.token_ids) - part.num_drafts
    return part._replace(token_ids=part.token_ids[:num_known], choices=part.choices[:1], num_drafts=0)


def _as_failure(error: Exception) -> FerrumError:
    if isinstance(error, FerrumError):
        return error
    failure = InternalError(f"a step failed: {error!r}")
    failure.__cause__ = error
    return failure
