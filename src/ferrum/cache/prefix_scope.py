"""PrefixScope: which requests may share the blocks of equal tokens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PrefixScope:
    """Requests share blocks only inside one scope; the model's identity belongs to the whole cache.

    adapter  the adapter that changes the weights, with its version; None = the base model
    salt     the caller's own word that keeps its prompts apart from others'; None = shared with everybody
    """

    adapter: str | None = None
    salt: str | None = None
