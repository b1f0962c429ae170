"""What the grammar engine says, in one line."""

from __future__ import annotations


def one_line(message: str) -> str:
    """The engine's words without its dumps."""
    head = message.split("<state>")[0].split("<non-verbose/>")[0].split("\n  while processing")[0]
    text = " ".join(head.split())
    return text if len(text) <= 300 else f"{text[:297]}..."
