"""Messages of the wire, checked and brought to the one form that chat templates get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ferrum.core.errors import InvalidRequest

ROLES = ("system", "developer", "user", "assistant", "tool")

# Two text parts are two paragraphs of one message.
PART_JOINER = "\n"


def chat_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """``messages`` with their text parts joined. Raises InvalidRequest naming the message and field.

    A developer message is a system message to templates; other fields (name, tool_calls, ...) pass unchanged.
    """
    if not messages:
        raise InvalidRequest("must hold at least one message", param="messages")
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _message(message: Mapping[str, Any], path: str) -> dict[str, Any]:
    role = message.get("role")
    if role not in ROLES:
        raise InvalidRequest(f"must be one of {', '.join(ROLES)}, not {role!r}", param=f"{path}.role")
    content = _text(message.get("content"), f"{path}.content", is_optional=role == "assistant")
    wire_role = "system" if role == "developer" else role
    return {**message, "role": wire_role, "content": content}


def _text(content: object, path: str, *, is_optional: bool) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return PART_JOINER.join(_part(part, f"{path}[{index}]") for index, part in enumerate(content))
    if content is None and is_optional:
        return ""
    raise InvalidRequest("must be a string or a list of text parts", param=path)


def _part(part: object, path: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or not isinstance(kind, str):
        raise InvalidRequest('must be a part such as {"type": "text", "text": "..."}', param=path)
    if kind not in ("text", "refusal"):
        raise InvalidRequest(f"parts of type {kind!r} are not supported by this model", param=path)
    text = part.get(kind)
    if not isinstance(text, str):
        raise InvalidRequest("must be a string", param=f"{path}.{kind}")
    return text
