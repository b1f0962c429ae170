"""Asks the grammar engine whether it takes a grammar, and can go on with it."""

from __future__ import annotations

import time

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from ferrum.constraints.engine_messages import one_line
from ferrum.core.errors import ConstraintTooComplex

MOST_BUILDING_S = 1.0
"""Processor time that the engine may take for a grammar: it takes as long again in the server."""

_TRIED_TOKENS = 4


def engine_limits() -> LLParserLimits:
    """The engine's own limits of size and work, and messages without dumps."""
    return LLParserLimits(verbose_errors=False)


def grammar_problem(grammar: str) -> str | None:
    """What the engine has against ``grammar``, in one line; None: nothing but what a vocabulary may show.

    Nothing is built, and no model's vocabulary asked.
    """
    is_wrong, messages = LLMatcher.validate_grammar_with_warnings(grammar, None, limits=engine_limits())
    return one_line(messages[0]) if is_wrong else None


def require_manageable(grammar: str) -> None:
    """Builds ``grammar`` over a vocabulary of bytes. Raises ConstraintTooComplex when that takes too long, or
    the engine gives up on it after a few tokens.
    """
    started = time.process_time()
    engine = LLMatcher(LLTokenizer("byte"), grammar, log_level=0, limits=engine_limits())
    if engine.is_error():
        return  # It names tokens of a vocabulary that is not here.
    problem = beginning_problem(engine)
    if problem is not None:
        raise ConstraintTooComplex(problem)
    if time.process_time() - started > MOST_BUILDING_S:
        raise ConstraintTooComplex(f"building it takes more than {MOST_BUILDING_S:g} s")


def beginning_problem(engine: LLMatcher) -> str | None:
    """Why the engine gives up within a few tokens; None: it does not, or allows no first one. ``engine``
    stays as it is.

    Some grammars are too large for its limits only behind their first bracket.
    """
    tried = engine.deep_copy()
    for number in range(_TRIED_TOKENS):
        bits = int.from_bytes(tried.compute_bitmask(), "little")
        if number == 0 and tried.is_stopped():
            return None
        lowest = (bits & -bits).bit_length() - 1
        if lowest < 0 or not tried.consume_token(lowest) or tried.is_stopped():
            break
    return one_line(tried.get_error()) if tried.is_error() else None
