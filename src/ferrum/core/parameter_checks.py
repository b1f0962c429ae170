"""Checks of what callers write into parameters: each raises InvalidRequest that names parameter and range."""

from __future__ import annotations

import math

from ferrum.core.errors import InvalidRequest


def require_integer(name: str, value: object, lowest: int, highest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"must be an integer, not {value!r}", param=name)
    if not lowest <= value <= highest:
        raise InvalidRequest(f"must be between {lowest} and {highest}, not {value}", param=name)


def require_number(name: str, value: object, lowest: float, highest: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(f"must be a number, not {value!r}", param=name)
    if not math.isfinite(value) or not lowest <= value <= highest:
        raise InvalidRequest(f"must be between {lowest:g} and {highest:g}, not {value:g}", param=name)


def require_number_above(name: str, value: object, bound: float, highest: float) -> None:
    require_number(name, value, bound, highest)
    if value == bound:
        raise InvalidRequest(f"must be above {bound:g} and at most {highest:g}, not {bound:g}", param=name)


def require_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidRequest(f"must be true or false, not {value!r}", param=name)


def require_token_ids(name: str, value: object, most: int) -> None:
    if not isinstance(value, tuple | list):
        raise InvalidRequest(f"must be a list of token ids, not {value!r}", param=name)
    if len(value) > most:
        raise InvalidRequest(f"at most {most} token ids, not {len(value)}", param=name)
    for token_id in value:
        require_integer(name, token_id, 0, 2**31 - 1)


def require_texts(name: str, value: object, most: int, kind: str) -> None:
    """``kind`` is what one of them is called."""
    if not isinstance(value, tuple | list) or not all(isinstance(text, str) for text in value):
        raise InvalidRequest("must be a list of strings", param=name)
    if len(value) > most:
        raise InvalidRequest(f"at most {most} {kind}s, not {len(value)}", param=name)
    if any(not text for text in value):
        raise InvalidRequest(f"a {kind} must not be empty", param=name)
