"""Asks the grammar engine whether it takes a grammar, without any model's vocabulary."""

from __future__ import annotations

from llguidance import LLMatcher, LLParserLimits

from ferrum.constraints.engine_messages import one_line


def engine_limits() -> LLParserLimits:
    """The engine's own limits of size and work, and messages without dumps."""
    return LLParserLimits(verbose_errors=False)


def grammar_problem(grammar: str) -> str | None:
    """What the engine has against ``grammar``, in one line; None: nothing but what a vocabulary may show."""
    is_wrong, messages = LLMatcher.validate_grammar_with_warnings(grammar, None, limits=engine_limits())
    return one_line(messages[0]) if is_wrong else None
