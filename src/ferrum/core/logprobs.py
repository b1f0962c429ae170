"""Log-probabilities of tokens: as a step finds them, and as an answer carries them.

They are of the model's own distribution, over the whole vocabulary, before anything that sampling does to it.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_TOP_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class RowLogprobs:
    """Of one token in its place, and of the most likely ones there, most likely first (ties: lower id).

    ``rank``: 1 for the most likely of all.
    """

    logprob: float
    rank: int
    top_ids: tuple[int, ...]
    top_logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A token with its natural log-probability and its rank, 1 for the most likely.

    ``data`` are its bytes: half a character where the token is half a character; of a control token its name.
    """

    token_id: int
    data: bytes
    is_control: bool
    logprob: float
    rank: int

    @property
    def text(self) -> str:
        """Bytes that are not UTF-8 become U+FFFD."""
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A token of a prompt or an answer, and ``top``, the most likely ones in its place, most likely first.

    ``logprob`` and ``rank`` are None for the first token of a prompt, which follows nothing; ``top`` is then
    empty. ``text_offset``: characters of the text before the token's own. Where a token begins within a
    character, that is the place of the character.
    """

    token_id: int
    data: bytes
    is_control: bool
    text_offset: int
    logprob: float | None
    rank: int | None
    top: tuple[ScoredToken, ...] = ()
