"""PrefixMatch: what the cache already holds of a request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """Good until the cache changes. The first ``num_tokens`` tokens need not be computed.

    blocks       whole blocks, shared as they are
    branch       a block that begins with the tokens after them and goes on otherwise; it is copied
    num_waking   blocks of ``blocks`` that nobody holds now: using them takes room
    """

    blocks: tuple[int, ...] = ()
    branch: int | None = None
    num_tokens: int = 0
    num_waking: int = 0
