"""Log-probabilities in the shapes of OpenAI's two routes, and of vLLM's ``prompt_logprobs``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ferrum.core.logprobs import ScoredToken, TokenLogprobs

# JSON has no minus infinity; vLLM's clients know this number for it.
_LEAST = -9999.0

_Token = ScoredToken | TokenLogprobs


def chat_logprobs(entries: Sequence[TokenLogprobs]) -> dict[str, object]:
    """``choices[].logprobs`` of a chat. Bytes are null for control tokens, which are no text."""
    content = [{**_chat_token(each), "top_logprobs": [*map(_chat_token, each.top)]} for each in entries]
    return {"content": content, "refusal": None}


def completion_logprobs(
    entries: Sequence[TokenLogprobs], num_top: int, text_length: int
) -> dict[str, object]:
    """``choices[].logprobs`` of a plain completion whose text has ``text_length`` characters so far.

    ``top_logprobs`` hold ``num_top`` tokens and the token itself. A token that stands behind the end of the
    text (a stop string, an end token) has the end for its place.
    """
    return {
        "tokens": [_name(each, "bytes:") for each in entries],
        "token_logprobs": [_number(each.logprob) for each in entries],
        "top_logprobs": [_top(each, num_top) for each in entries],
        "text_offset": [min(each.text_offset, text_length) for each in entries],
    }


def prompt_logprobs(entries: Sequence[TokenLogprobs], num_top: int) -> list[dict[str, object] | None]:
    """By token id as text: the prompt's token and the ``num_top`` most likely ones in its place."""
    return [None if entry.logprob is None else _by_id(entry, num_top) for entry in entries]


def _by_id(entry: TokenLogprobs, num_top: int) -> dict[str, object]:
    tokens: Iterable[_Token] = (entry, *entry.top[:num_top])
    return {
        str(each.token_id): {
            "logprob": _number(each.logprob),
            "rank": each.rank,
            "decoded_token": _name(each),
        }
        for each in tokens
    }


def _top(entry: TokenLogprobs, num_top: int) -> dict[str, float | None] | None:
    if entry.logprob is None:
        return None
    named: dict[str, float | None] = {}
    tokens: tuple[_Token, ...] = (*entry.top[:num_top], entry)
    for each in tokens:
        # Two tokens may read alike; the likelier one is told.
        named.setdefault(_name(each, "bytes:"), _number(each.logprob))
    return named


def _chat_token(token: _Token) -> dict[str, object]:
    return {
        "token": _name(token),
        "logprob": _number(token.logprob),
        "bytes": None if token.is_control else list(token.data),
    }


def _name(token: _Token, prefix: str = "") -> str:
    """Its text; where it is no whole characters, its bytes as \\xNN, after ``prefix``."""
    try:
        return token.data.decode()
    except UnicodeDecodeError:
        return prefix + "".join(f"\\x{byte:02x}" for byte in token.data)


def _number(logprob: float | None) -> float | None:
    return None if logprob is None else max(logprob, _LEAST)
