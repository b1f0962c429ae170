"""Options that hold several values, separated by commas."""

from __future__ import annotations

from ferrum.core.errors import InvalidConfig


def names_of(text: str) -> list[str]:
    """The names in ``text``, each once, in order."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def counts_of(text: str, option: str) -> list[int]:
    """Whole numbers from 1 up, each once, in order. Raises InvalidConfig naming ``option``."""
    names = names_of(text)
    if not names or not all(name.isdecimal() and int(name) >= 1 for name in names):
        raise InvalidConfig(option, f"must be whole numbers from 1 up, separated by commas, not {text!r}")
    return [int(name) for name in names]
