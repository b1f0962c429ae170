"""Texts as they may be shown: how long they are and what they hash to, never what they say."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ferrum.core.request import ChatPrompt, Prompt, TextPrompt


def redact_text(text: str) -> dict[str, Any]:
    """``num_characters`` and ``sha256`` of the UTF-8 bytes (a lone surrogate as it is)."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return {"redacted": True, "num_characters": len(text), "sha256": f"sha256:{digest}"}


def redact_prompt(prompt: Prompt) -> dict[str, Any]:
    """The form of a prompt: for a chat the roles and, for each text in it, its length and hash."""
    if isinstance(prompt, TextPrompt):
        return {"kind": "text", "text": redact_text(prompt.text)}
    if not isinstance(prompt, ChatPrompt):
        return {"kind": "tokens"}
    return {
        "kind": "chat",
        "messages": [_redact_message(message) for message in prompt.messages],
        "num_tools": len(prompt.tools or ()),
        "continues_final_message": prompt.continue_final_message,
    }


def redacted_line(text: str) -> str:
    """One line that stands for ``text`` in a file of text."""
    facts = redact_text(text)
    return f"[redacted: {facts['num_characters']} characters, {facts['sha256']}]\n"


def _redact_message(message: Mapping[str, Any]) -> dict[str, Any]:
    role = message.get("role")
    known = role if role in ("system", "developer", "user", "assistant", "tool") else "other"
    return {"role": known, "texts": [redact_text(text) for text in _texts({**message, "role": None})]}


def _texts(value: object) -> Iterator[str]:
    """Every text in a JSON value, in order; keys are names, not content."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        for each in value:
            yield from _texts(each)
