"""OpenAI's message objects made ready for a template: checked, texts of parts joined, arguments as objects.

Knows nothing of Jinja or tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ferrum.core.errors import InvalidRequest

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})

# Between the text parts of one message, as vLLM and llama.cpp join them.
PART_JOINER = "\n"

Message = dict[str, Any]


class ContentForm(Enum):
    """How a template wants a message's content: as one text, or as a list of parts."""

    TEXT = "text"
    PARTS = "parts"
    EITHER = "either"


@dataclass(frozen=True, slots=True)
class ContentRules:
    """What a template takes as content. ``has_null``: it asks whether one is none; others would print it."""

    form: ContentForm
    has_null: bool


def prepare_messages(messages: Sequence[Mapping[str, Any]], rules: ContentRules) -> list[Message]:
    """Copies the messages in the template's form; doing it twice changes nothing more.

    Raises InvalidRequest naming the message and field.
    """
    if isinstance(messages, str) or not isinstance(messages, Sequence):
        raise InvalidRequest("must be a list of message objects", param="messages")
    if not messages:
        raise InvalidRequest("must hold at least one message", param="messages")
    return [_prepare(message, f"messages[{index}]", rules) for index, message in enumerate(messages)]


def _prepare(message: object, where: str, rules: ContentRules) -> Message:
    if not isinstance(message, Mapping):
        raise InvalidRequest("must be an object with role and content", param=where)
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise InvalidRequest(
            f"must be one of {', '.join(sorted(ROLES))}, not {role!r}", param=f"{where}.role"
        )
    prepared = dict(message)
    if message.get("tool_calls") is not None:
        prepared["tool_calls"] = _prepare_tool_calls(message["tool_calls"], f"{where}.tool_calls")
    content = message.get("content")
    if content is None:
        if role != "assistant":
            raise InvalidRequest("must be a text or a list of text parts, not null", param=f"{where}.content")
        prepared["content"] = None if rules.has_null and "tool_calls" in prepared else ""
        return prepared
    prepared["content"] = _prepare_content(content, f"{where}.content", rules.form)
    return prepared


def _prepare_content(content: object, where: str, form: ContentForm) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if form is ContentForm.PARTS else content
    if not isinstance(content, Sequence):
        raise InvalidRequest("must be a text or a list of text parts", param=where)
    texts = [_text_of_part(part, f"{where}[{index}]") for index, part in enumerate(content)]
    if form is ContentForm.TEXT:
        return PART_JOINER.join(texts)
    return [{"type": "text", "text": text} for text in texts]


def _text_of_part(part: object, where: str) -> str:
    if not isinstance(part, Mapping):
        raise InvalidRequest('must be an object such as {"type": "text", "text": "..."}', param=where)
    if part.get("type") not in ("text", "input_text", "output_text"):
        raise InvalidRequest(
            f"parts of type {part.get('type')!r} are not supported: this model takes text only",
            param=f"{where}.type",
        )
    text = part.get("text")
    if not isinstance(text, str):
        raise InvalidRequest("must be a text", param=f"{where}.text")
    return text


def _prepare_tool_calls(calls: object, where: str) -> list[Any]:
    if isinstance(calls, str) or not isinstance(calls, Sequence):
        raise InvalidRequest("must be a list", param=where)
    return [_with_argument_object(call, f"{where}[{index}]") for index, call in enumerate(calls)]


def _with_argument_object(call: object, where: str) -> dict[str, Any]:
    """OpenAI sends arguments as JSON text; templates expect the object itself and write it with tojson."""
    if not isinstance(call, Mapping):
        raise InvalidRequest("must be an object", param=where)
    function = call.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return dict(call)
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise InvalidRequest("must be a JSON object", param=f"{where}.function.arguments")
    return {**call, "function": {**function, "arguments": arguments}}
