"""TokenGate: which tokens may come next at one place of one answer. Knows no logits and no scheduling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ferrum.core.errors import FerrumError, ForbiddenToken
from ferrum.core.token_rules import TokenMask


class TokenGate(Protocol):
    """A place in an answer, as a value: the place after a token is another gate.

    That makes it as cheap to look ahead (a drafted token) as to go on. ``mask`` None allows every token.
    ``error`` is why the answer cannot go on from here, though its last token was allowed.
    """

    @property
    def mask(self) -> TokenMask | None: ...
    @property
    def error(self) -> FerrumError | None: ...
    def after(self, token_id: int) -> TokenGate:
        """The place after this token, whether or not it is allowed here."""
        ...


def full_mask(vocabulary_size: int) -> TokenMask:
    """A mask that allows every token; bits beyond the vocabulary are 0. The caller may change it."""
    mask = np.full(-(-vocabulary_size // 32), 0xFFFFFFFF, dtype=np.uint32)
    if vocabulary_size % 32:
        mask[-1] = (1 << vocabulary_size % 32) - 1
    return mask


def without_tokens(mask: TokenMask, token_ids: Sequence[int]) -> TokenMask:
    """A copy that forbids these tokens too; it cannot be changed by mistake."""
    ids = np.asarray(token_ids, dtype=np.int64)
    copy = mask.copy()
    np.bitwise_and.at(copy, ids // 32, ~(np.uint32(1) << (ids % 32).astype(np.uint32)))
    copy.setflags(write=False)
    return copy


def is_allowed(mask: TokenMask | None, token_id: int) -> bool:
    """Whether the mask lets this token through; ids beyond it never."""
    if mask is None:
        return True
    word, bit = divmod(token_id, 32)
    return 0 <= word < len(mask) and bool(int(mask[word]) >> bit & 1)


def only_token(mask: TokenMask | None) -> int | None:
    """The one token that the mask allows; None when there are more, or none."""
    if mask is None:
        return None
    if np.count_nonzero(mask) != 1:
        return None
    word = int(mask.argmax())
    bits = int(mask[word])
    return word * 32 + bits.bit_length() - 1 if bits & (bits - 1) == 0 else None


def forced_tokens(gate: TokenGate | None, most: int) -> list[int]:
    """Up to ``most`` tokens that are the only ones in their places: choosing them takes no logits."""
    forced: list[int] = []
    while gate is not None and len(forced) < most:
        token_id = only_token(gate.mask)
        if token_id is None:
            break
        gate = gate.after(token_id)
        if gate.error is not None:
            break
        forced.append(token_id)
    return forced


def pass_through(gate: TokenGate, token_id: int) -> TokenGate:
    """The place after a token that was chosen here.

    Raises ForbiddenToken for one that ``gate`` does not allow (an executor that did not heed its mask), and
    what the answer cannot go on for.
    """
    if not is_allowed(gate.mask, token_id):
        raise ForbiddenToken(token_id)
    following = gate.after(token_id)
    if following.error is not None:
        raise following.error
    return following


@dataclass(frozen=True, slots=True)
class StillGate:
    """Allows the same tokens at every place."""

    mask: TokenMask | None = None

    @property
    def error(self) -> FerrumError | None:
        return None

    def after(self, token_id: int) -> TokenGate:
        return self


@dataclass(frozen=True, slots=True)
class FirstTokenGate:
    """``mask`` is for the first token of the answer, ``rest`` for all that follow it."""

    mask: TokenMask | None
    rest: TokenGate

    @property
    def error(self) -> FerrumError | None:
        return None

    def after(self, token_id: int) -> TokenGate:
        return self.rest.after(token_id)


class JoinedGate:
    """Allows what all of its gates allow. The mask is made when it is first asked for."""

    __slots__ = ("_gates", "_mask")

    def __init__(self, gates: Sequence[TokenGate]) -> None:
        self._gates = tuple(gates)
        self._mask: TokenMask | None = None

    @property
    def mask(self) -> TokenMask | None:
        if self._mask is None:
            masks = [mask for gate in self._gates if (mask := gate.mask) is not None]
            self._mask = masks[0] if len(masks) == 1 else np.bitwise_and.reduce(masks) if masks else None
        return self._mask

    @property
    def error(self) -> FerrumError | None:
        return next((error for gate in self._gates if (error := gate.error) is not None), None)

    def after(self, token_id: int) -> TokenGate:
        following = tuple(gate.after(token_id) for gate in self._gates)
        return self if all(map(_is_same, following, self._gates)) else JoinedGate(following)


def join_gates(gates: Sequence[TokenGate]) -> TokenGate | None:
    """One gate for all of them, None for none."""
    return gates[0] if len(gates) == 1 else JoinedGate(gates) if gates else None


def _is_same(one: TokenGate, other: TokenGate) -> bool:
    return one is other
