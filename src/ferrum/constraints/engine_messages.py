"""What the grammar engine says, in one line."""

from __future__ import annotations

from llguidance import LLMatcher, LLParserLimits, LLTokenizer


def engine_problem(grammar: str, tokenizer: LLTokenizer, limits: LLParserLimits) -> str | None:
    """What the engine has against ``grammar``, in one line; None: nothing."""
    is_wrong, messages = LLMatcher.validate_grammar_with_warnings(grammar, tokenizer, limits=limits)
    return one_line(messages[0]) if is_wrong else None


def one_line(message: str) -> str:
    """The engine's words without its dumps."""
    head = message.split("<state>")[0].split("<non-verbose/>")[0].split("\n  while processing")[0]
    text = " ".join(head.split())
    return text if len(text) <= 300 else f"{text[:297]}..."
