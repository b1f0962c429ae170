"""BadWordsGate: sequences of tokens that may not come."""

from __future__ import annotations

from collections.abc import Sequence

from ferrum.core.errors import FerrumError
from ferrum.core.token_gate import TokenGate, without_tokens
from ferrum.core.token_rules import TokenMask


class BadWordsGate:
    """Forbids the last token of each of ``sequences`` where the tokens before it have just been generated.

    The prompt has no part in it. Immutable; ``everything`` is the mask that allows all.
    """

    __slots__ = ("_base", "_longer", "_reach", "_recent")

    def __init__(self, sequences: Sequence[tuple[int, ...]], everything: TokenMask) -> None:
        self._base = without_tokens(everything, [ids[0] for ids in sequences if len(ids) == 1])
        self._longer = tuple(ids for ids in sequences if len(ids) > 1)
        self._reach = max(map(len, self._longer), default=1) - 1
        self._recent: tuple[int, ...] = ()

    @property
    def mask(self) -> TokenMask:
        recent = self._recent
        ending = [ids[-1] for ids in self._longer if recent[len(recent) - len(ids) + 1 :] == ids[:-1]]
        return without_tokens(self._base, ending) if ending else self._base

    @property
    def error(self) -> FerrumError | None:
        return None

    def after(self, token_id: int) -> TokenGate:
        if not self._longer:
            return self
        following = object.__new__(BadWordsGate)
        following._base, following._longer, following._reach = self._base, self._longer, self._reach
        following._recent = (*self._recent, token_id)[-self._reach :]
        return following
