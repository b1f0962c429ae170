"""A drafter that is told the answers, and gets them wrong where a test wants it to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ferrum.core.drafting import Chances, DraftWish

Answer = Callable[[DraftWish], Sequence[int]]
"""What the drafter believes comes next."""


class TeachableDrafter:
    """Sure of everything. ``left``: who stopped running. ``num_drafted`` counts what was asked of it."""

    token_s = 0.0

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.left: list[str] = []
        self.num_drafted = 0
        self.is_closed = False
        self.num_prepared = 0

    def prepare_startup(self) -> None:
        self.num_prepared += 1

    def chances(self, wishes: Sequence[DraftWish]) -> list[Chances]:
        assert all(wish.most >= 1 for wish in wishes)
        return [(0.99,) * wish.most for wish in wishes]

    def draft(self, wishes: Sequence[DraftWish], counts: Sequence[int]) -> list[tuple[int, ...]]:
        drafts = [tuple(self._answer(wish)[:count]) for wish, count in zip(wishes, counts, strict=True)]
        self.num_drafted += sum(map(len, drafts))
        return drafts

    def leave(self, request_id: str) -> None:
        self.left.append(request_id)

    def close(self) -> None:
        self.is_closed = True


def knowing(text: str, prompt_tokens: int) -> Answer:
    """Knows the whole answer, a byte a token."""
    answer = text.encode()
    return lambda wish: answer[len(wish.token_ids) - prompt_tokens :]
