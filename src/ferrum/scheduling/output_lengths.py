"""How long answers have been lately, for those who name no limit of their own."""

from __future__ import annotations

from collections import deque

# Answers that are remembered, and the share of them that an expectation covers.
_NUM_REMEMBERED = 64
_SHARE_COVERED = 0.9


class OutputLengths:
    """Tokens to expect of the next answer: what nine of ten lately took, and never fewer than ``prior``.

    Mutated by the scheduler only.
    """

    def __init__(self, prior: int) -> None:
        self._prior = prior
        self._lengths: deque[int] = deque(maxlen=_NUM_REMEMBERED)
        self.expected = prior

    def note(self, num_tokens: int) -> None:
        """An answer took this many tokens, or this many already."""
        self._lengths.append(num_tokens)
        by_length = sorted(self._lengths)
        covering = by_length[min(int(len(by_length) * _SHARE_COVERED), len(by_length) - 1)]
        self.expected = max(self._prior, covering)
