"""Regular expressions from their writers' syntax to the grammar engine's, without a change of meaning.

JSON Schema means ECMAScript's expressions, its validators in Python use ``re``, and the engine reads Rust's
dialect, where [a&&b] or \\d mean something else. So an expression is parsed as ``re`` parses it and written
anew; a class that the dialects read differently is written as what all of them allow. What the engine cannot
do (looking around, back references) is refused.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Mapping
from typing import Any

_parser = importlib.import_module("re._parser")
_constants = importlib.import_module("re._constants")

ANYTHING = "(?s:.*)"
MAX_LENGTH = 50_000
MAX_REPEAT = 100_000

# What is certainly in the class, and what may be in it: ECMAScript's and Python's reading, met and joined.
_NARROW = {
    "CATEGORY_DIGIT": "0-9",
    "CATEGORY_NOT_DIGIT": r"\P{Nd}",
    "CATEGORY_WORD": "0-9A-Za-z_",
    "CATEGORY_NOT_WORD": r"[^\p{L}\p{M}\p{N}\p{Pc}]",
    "CATEGORY_SPACE": r" \t\n\r\x0b\x0c",
    "CATEGORY_NOT_SPACE": r"[^\s\x1c-\x1f\ufeff]",
}
_WIDE = {
    "CATEGORY_DIGIT": r"\p{Nd}",
    "CATEGORY_NOT_DIGIT": "[^0-9]",
    "CATEGORY_WORD": r"\p{L}\p{M}\p{N}\p{Pc}",
    "CATEGORY_NOT_WORD": "[^0-9A-Za-z_]",
    "CATEGORY_SPACE": r"\s\x1c-\x1f\ufeff",
    "CATEGORY_NOT_SPACE": r"[^ \t\n\r\x0b\x0c]",
}
_UNSUPPORTED = {
    "ASSERT": "looking around (?=...) is not supported",
    "ASSERT_NOT": "looking around (?!...) is not supported",
    "GROUPREF": "back references are not supported",
    "GROUPREF_EXISTS": "conditional groups are not supported",
    "ATOMIC_GROUP": "atomic groups are not supported",
    "POSSESSIVE_REPEAT": "possessive repetition is not supported",
}


_PYTHON = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
}


class UnsupportedRegex(Exception):
    """The expression is wrong or cannot be enforced; the message says why."""


def whole_text_regex(pattern: str) -> str:
    """An expression for the texts that ``pattern`` matches from the first to the last character."""
    return _Writer(_NARROW, _WIDE).alternatives(_parse(pattern), open_edge="")


def search_regex(pattern: str) -> str:
    """An expression for the texts in which ``pattern`` matches somewhere, as JSON Schema means it."""
    return _Writer(_NARROW, _WIDE).alternatives(_parse(pattern), open_edge=ANYTHING)


def python_whole_text_regex(pattern: str) -> str:
    """The same texts as ``whole_text_regex``, for Python, which then warns of nothing in it."""
    return rf"\A{_Writer(_PYTHON, _PYTHON).alternatives(_parse(pattern), open_edge='')}\Z"


def python_search_regex(pattern: str) -> str:
    """The same texts as ``search_regex``, for Python, which then warns of nothing in it."""
    return rf"\A{_Writer(_PYTHON, _PYTHON).alternatives(_parse(pattern), open_edge=ANYTHING)}\Z"


def literal_regex(text: str) -> str:
    """An expression for exactly this text."""
    return "".join(_escape(ord(character)) for character in text)


def _parse(pattern: str) -> Any:
    """Raises UnsupportedRegex with the parser's own words."""
    if len(pattern) > MAX_LENGTH:
        raise UnsupportedRegex(f"has {len(pattern)} characters, and the limit is {MAX_LENGTH}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's warnings about brackets in sets: they are literal.
            tree = _parser.parse(_with_python_names(pattern))
            re.compile(_with_python_names(pattern))
    except (re.error, OverflowError, RecursionError) as error:
        raise UnsupportedRegex(f"is no valid regular expression: {error}") from None
    if tree.state.flags & ~(re.UNICODE.value | re.IGNORECASE.value | re.DOTALL.value | re.VERBOSE.value):
        raise UnsupportedRegex("the flags a, L and m are not supported")
    return tree


def _with_python_names(pattern: str) -> str:
    """ECMAScript's named groups as Python spells them."""
    return re.sub(r"(?<!\\)\(\?<(?![=!])", "(?P<", pattern)


class _Writer:
    """Writes a parsed expression; ``narrow`` and ``wide`` are its classes, outside and inside of negation."""

    def __init__(self, narrow: Mapping[str, str], wide: Mapping[str, str]) -> None:
        self._narrow = narrow
        self._wide = wide

    def alternatives(self, tree: Any, open_edge: str) -> str:
        """The expression at the outside, where anchors count; ``open_edge`` stands where there is none."""
        flags = tree.state.flags
        written = self._outer(list(tree), flags, open_edge)
        return f"(?i:{written})" if flags & re.IGNORECASE.value else written

    def _outer(self, items: list[Any], flags: int, open_edge: str) -> str:
        if len(items) == 1:
            kind, value = items[0]
            if kind is _constants.BRANCH:
                options = [self._outer(list(each), flags, open_edge) for each in value[1]]
                return f"(?:{'|'.join(options)})"
            if kind is _constants.SUBPATTERN and not value[1] and not value[2]:
                return self._outer(list(value[3]), flags, open_edge)
        start = end = open_edge
        while items and _is_at(items[0], "AT_BEGINNING", "AT_BEGINNING_STRING"):
            items, start = items[1:], ""
        while items and _is_at(items[-1], "AT_END", "AT_END_STRING"):
            items, end = items[:-1], ""
        return f"(?:{start}{self._sequence(items, flags)}{end})"

    def _sequence(self, items: Any, flags: int) -> str:
        return "".join(self._item(kind, value, flags) for kind, value in items)

    def _item(self, kind: Any, value: Any, flags: int) -> str:
        name = str(kind)
        if name in _UNSUPPORTED:
            raise UnsupportedRegex(_UNSUPPORTED[name])
        if name == "LITERAL":
            return _escape(value)
        if name == "NOT_LITERAL":
            return f"[^{_escape(value)}]"
        if name == "ANY":
            return "(?s:.)" if flags & re.DOTALL.value else r"[^\n\r\u2028\u2029]"
        if name == "IN":
            return _character_class(value, self._narrow, self._wide)
        if name == "BRANCH":
            return f"(?:{'|'.join(self._sequence(each, flags) for each in value[1])})"
        if name == "SUBPATTERN":
            return self._group(value, flags)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            return self._repeat(value, flags)
        raise UnsupportedRegex(
            "^ and $ are only supported at the ends of the expression or of its outermost alternatives, "
            "word borders nowhere"
            if name == "AT"
            else f"{name.lower()} is not supported"
        )

    def _group(self, value: Any, flags: int) -> str:
        _, added, removed, tree = value
        if removed or added & ~(re.IGNORECASE.value | re.DOTALL.value):
            raise UnsupportedRegex("of the flags only i and s are supported, and only to be set")
        written = self._sequence(tree, flags | added)
        return f"(?i:{written})" if added & re.IGNORECASE.value else f"(?:{written})"

    def _repeat(self, value: Any, flags: int) -> str:
        least, most, tree = value
        endless = most is _constants.MAXREPEAT
        if least > MAX_REPEAT or (not endless and most > MAX_REPEAT):
            raise UnsupportedRegex(f"repeats more than {MAX_REPEAT} times")
        written = f"(?:{self._sequence(tree, flags)})"
        if endless:
            return written + ("*" if least == 0 else "+" if least == 1 else f"{{{least},}}")
        return f"{written}{{{least},{most}}}"


def _is_at(item: Any, *places: str) -> bool:
    kind, value = item
    return kind is _constants.AT and str(value) in places


def _character_class(members: Any, narrow: Mapping[str, str], wide: Mapping[str, str]) -> str:
    is_negated = bool(members) and members[0][0] is _constants.NEGATE
    classes = wide if is_negated else narrow
    written = []
    for kind, value in members[is_negated:]:
        name = str(kind)
        if name == "LITERAL":
            written.append(_escape(value))
        elif name == "RANGE":
            written.append(f"{_escape(value[0])}-{_escape(value[1])}")
        else:
            assert name == "CATEGORY", f"a character class holds {name}"
            written.append(classes[str(value)])
    return f"[{'^' if is_negated else ''}{''.join(written)}]"


def _escape(code: int) -> str:
    """One character as every dialect reads it. Raises UnsupportedRegex for half a surrogate pair."""
    if 0xD800 <= code <= 0xDFFF:
        raise UnsupportedRegex(f"U+{code:04X} is half of a surrogate pair and no character")
    character = chr(code)
    return character if character.isascii() and character.isalnum() else f"\\U{code:08X}"
