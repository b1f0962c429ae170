"""The four forms of a completion's prompt: a string, strings, token ids, lists of token ids."""

from __future__ import annotations

from typing import TypeGuard

from ferrum.core.errors import InvalidRequest
from ferrum.core.request import TextPrompt, TokenPrompt

MAX_PROMPTS = 256


def completion_prompts(prompt: object) -> list[TextPrompt | TokenPrompt]:
    """One prompt per choice, in order. Raises InvalidRequest for anything else or a mixture."""
    if isinstance(prompt, str):
        return [TextPrompt(prompt)]
    if not isinstance(prompt, list) or not prompt:
        raise InvalidRequest(
            "must be a string, a list of strings, a list of token ids or a list of such lists", param="prompt"
        )
    if _are_token_ids(prompt):
        return [TokenPrompt(tuple(prompt))]
    if len(prompt) > MAX_PROMPTS:
        raise InvalidRequest(f"at most {MAX_PROMPTS} prompts, not {len(prompt)}", param="prompt")
    if len({type(entry) for entry in prompt}) > 1:
        raise InvalidRequest("must not mix strings and token ids", param="prompt")
    return [_entry(entry, index) for index, entry in enumerate(prompt)]


def _entry(entry: object, index: int) -> TextPrompt | TokenPrompt:
    if isinstance(entry, str):
        return TextPrompt(entry)
    if isinstance(entry, list) and entry and _are_token_ids(entry):
        return TokenPrompt(tuple(entry))
    raise InvalidRequest("must be a string or a list of token ids", param=f"prompt[{index}]")


def _are_token_ids(values: list[object]) -> TypeGuard[list[int]]:
    return all(isinstance(value, int) and not isinstance(value, bool) for value in values)
