"""The Jinja environment that chat templates expect, as Hugging Face's `apply_chat_template` provides it.

Immutable sandbox, trimmed blocks, loop controls, `generation` blocks, `raise_exception`, `strftime_now` and a
`tojson` that neither escapes nor sorts. Templates come with model files, so work and size are bounded.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

LONGEST_TEXT = 64 * 2**20
LONGEST_RENDERING_S = 10.0

_WIDE_FORMAT = re.compile(r"\*|\d{5}")

Clock = Callable[[], datetime]


class TemplateRefusal(jinja2.TemplateError):
    """The template called raise_exception; the message is the template's own."""


class TemplateTooExpensive(jinja2.TemplateError):
    """The template works too long or writes too much."""


class _GenerationExtension(Extension):
    """`{% generation %}...{% endgeneration %}` marks what the assistant wrote; rendering keeps the text."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance-level set

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatSandbox(ImmutableSandboxedEnvironment):
    """Compiles and renders chat templates; mutates its deadline, so one thread may render at a time."""

    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def __init__(self, clock: Clock) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationExtension, LoopControlExtension]
        )
        self._deadline = time.monotonic() + LONGEST_RENDERING_S
        self.filters["tojson"] = _to_json
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda form: clock().strftime(form)

    def render(self, template: jinja2.Template, variables: dict[str, Any]) -> str:
        """Raises jinja2.TemplateError, and whatever the template's own operations raise."""
        self._deadline = time.monotonic() + LONGEST_RENDERING_S
        pieces: list[str] = []
        length = 0
        for piece in template.generate(variables):
            length += len(piece)
            if length > LONGEST_TEXT:
                raise TemplateTooExpensive(f"the chat template writes more than {LONGEST_TEXT} characters")
            self._check_deadline()
            pieces.append(piece)
        return "".join(pieces)

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        self._check_deadline()
        return super().call(context, function, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self._check_deadline()
        if operator == "*" and _repeated_length(left, right) > LONGEST_TEXT:
            raise TemplateTooExpensive(f"the chat template repeats a text beyond {LONGEST_TEXT} characters")
        if operator == "**" and (not _is_small(left) or not _is_small(right)):
            raise TemplateTooExpensive("the chat template raises a number to a huge power")
        if operator == "%" and isinstance(left, str) and _WIDE_FORMAT.search(left):
            raise TemplateTooExpensive("the chat template formats a text to a huge width")
        result = super().call_binop(context, operator, left, right)
        if isinstance(result, str) and len(result) > LONGEST_TEXT:
            raise TemplateTooExpensive(f"the chat template joins texts beyond {LONGEST_TEXT} characters")
        return result

    def _check_deadline(self) -> None:
        if time.monotonic() > self._deadline:
            raise TemplateTooExpensive(f"the chat template works longer than {LONGEST_RENDERING_S:g} s")


def _repeated_length(left: Any, right: Any) -> int:
    if isinstance(left, int) and isinstance(right, str | list | tuple):
        left, right = right, left
    return len(left) * right if isinstance(left, str | list | tuple) and isinstance(right, int) else 0


def _is_small(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) <= 1024


def _raise_exception(message: str) -> NoReturn:
    raise TemplateRefusal(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
