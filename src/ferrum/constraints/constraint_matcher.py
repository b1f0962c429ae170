"""How far one answer has come in its grammar: which tokens may come next, and whether it may end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from llguidance import LLMatcher

from ferrum.constraints.answer_check import AnswerCheck
from ferrum.constraints.json_schema_grammar import one_line
from ferrum.core.errors import ConstraintTooComplex
from ferrum.core.token_rules import TokenMask


class ConstraintMatcher:
    """The state of one answer: a function of its generated tokens alone. Mutated by one thread at a time.

    ``num_words`` is the length of a mask, whatever the vocabulary of the grammar is. ``mask`` is that of the
    next token; MaskFiller fills it after tokens were accepted.
    """

    __slots__ = ("_check", "_delimiter", "_token_bytes", "_written", "engine", "is_masked", "mask")

    def __init__(
        self,
        engine: LLMatcher,
        mask: TokenMask,
        check: AnswerCheck,
        token_bytes: Callable[[int], bytes],
        delimiter: str | None,
    ) -> None:
        self.engine = engine
        self.mask = mask  # [num_words], of the next token
        self.is_masked = True  # whether ``mask`` is up to date
        self._check = check
        self._token_bytes = token_bytes
        self._delimiter = None if delimiter is None else delimiter.encode()
        self._written: list[bytes] = []

    @property
    def is_complete(self) -> bool:
        """Whether nothing but the end may follow."""
        return self.engine.is_stopped()

    @property
    def may_end(self) -> bool:
        """Whether what there is fulfils the constraint."""
        return self.engine.is_accepting()

    def accept(self, token_id: int) -> None:
        """Adds the token that was chosen. Raises ConstraintTooComplex when the grammar cannot go on."""
        if self.engine.is_stopped():
            return  # The end token, after a value that was complete.
        if not self.engine.consume_token(token_id):
            raise self.failure()
        self._written.append(self._token_bytes(token_id))
        self.is_masked = False

    def roll_back(self, num_tokens: int) -> None:
        """Takes the last accepted tokens back."""
        if num_tokens:
            self.engine.rollback(num_tokens)
            del self._written[-num_tokens:]
            self.is_masked = False

    def count_allowed(self, token_ids: Sequence[int]) -> int:
        """How many of these tokens, from the first on, may follow; nothing is accepted."""
        return self.engine.validate_tokens(list(token_ids))

    def problem(self) -> str | None:
        """What is wrong with the finished answer; None: it is what the constraint says."""
        if not self.may_end:
            return "it ended before its value was complete"
        data = b"".join(self._written)
        if self._delimiter is not None:
            data = data.partition(self._delimiter)[2].lstrip(b" \t\r\n")
        return self._check.problem(data.decode("utf-8", "replace"))

    def failure(self) -> ConstraintTooComplex:
        """Why the engine gave up."""
        return ConstraintTooComplex(one_line(self.engine.get_error() or "the grammar engine gave up"))


def count_bits(mask: TokenMask) -> int:
    """How many tokens a mask allows."""
    return int(np.unpackbits(mask.view(np.uint8)).sum())
