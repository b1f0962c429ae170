"""What a request found in the prefix cache, and why it found no more."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CacheEnd(StrEnum):
    """Why what was found ends where it does.

    COMPLETE         all was there but the last token, which is computed always
    DIFFERENT_TOKEN  every cached prompt that begins alike goes on with another token
    NOTHING_LONGER   nothing cached goes on from there: never computed, or forgotten when room was needed
    NOTHING_CACHED   nothing is cached under the request's salt and adapter
    DISABLED         there is no prefix cache
    """

    COMPLETE = "complete"
    DIFFERENT_TOKEN = "different_token"
    NOTHING_LONGER = "nothing_longer"
    NOTHING_CACHED = "nothing_cached"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class CacheExplanation:
    """The prompt beside the nearest cached one, when the request began to run.

    ``position``: how many tokens the two have in common, and so the first that differs. The ids are those at
    that position; None where one of the two has no token there.
    """

    end: CacheEnd
    prompt_tokens: int
    cached_tokens: int
    position: int
    token_id: int | None = None
    cached_token_id: int | None = None


@dataclass(frozen=True, slots=True)
class CacheUse:
    """``cached_tokens`` of the prompt were found; the explanation is there when it was asked for."""

    cached_tokens: int = 0
    explanation: CacheExplanation | None = None
