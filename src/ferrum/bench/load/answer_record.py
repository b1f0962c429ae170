"""What was seen of one request: when its tokens came, how many they were, how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(slots=True)
class AnswerRecord:
    """Filled in by the client while the answer comes, and not changed afterwards. Times are of one clock.

    sent_at            when the request should have been sent; later than that is waiting, too
    text_times         when each piece of text came; most servers send one a token
    prompt_tokens      as the server counts them; None if it did not say
    completion_tokens  likewise
    error              None for an answer that came to its end
    """

    sent_at: float
    ended_at: float = 0.0
    text_times: list[float] = field(default_factory=list)
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    error: str | None = None

    @property
    def num_tokens(self) -> int:
        """The server's count, or else one for each piece of text."""
        return len(self.text_times) if self.completion_tokens is None else self.completion_tokens

    @property
    def first_token_s(self) -> float | None:
        return self.text_times[0] - self.sent_at if self.text_times else None

    @property
    def gaps_s(self) -> list[float]:
        """Between neighbouring pieces of text."""
        return [later - earlier for earlier, later in pairwise(self.text_times)]
