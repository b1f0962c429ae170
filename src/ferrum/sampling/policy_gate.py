"""PolicyGate: a strict policy along one answer, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from ferrum.core.errors import FerrumError
from ferrum.core.token_gate import FirstTokenGate, StillGate, TokenGate, full_mask, without_tokens
from ferrum.core.token_rules import TokenMask
from ferrum.sampling.token_policy import PolicyTokenizer, TokenPolicy, with_tokens
from ferrum.sampling.utf8_fragments import after_bytes


@dataclass(frozen=True, slots=True)
class PolicyGate:
    """``pending`` are the bytes of a character that is not whole yet: nothing but the rest of it may come.

    ``plain_mask`` is the mask where there are none.
    """

    policy: TokenPolicy
    plain_mask: TokenMask | None
    bytes_of: Callable[[int], bytes]
    pending: bytes = b""

    @property
    def mask(self) -> TokenMask | None:
        return self.policy.mask_after(self.pending) if self.pending else self.plain_mask

    @property
    def error(self) -> FerrumError | None:
        return None

    def after(self, token_id: int) -> TokenGate:
        pending = after_bytes(self.pending, self.bytes_of(token_id)) or b""
        if pending == self.pending:
            return self
        return PolicyGate(self.policy, self.plain_mask, self.bytes_of, pending)


def policy_gate(
    policy: TokenPolicy,
    tokenizer: PolicyTokenizer,
    allowed_ids: Collection[int],
    forbidden_first_ids: Collection[int],
) -> TokenGate | None:
    """The policy for one answer, None where it allows everything.

    ``allowed_ids`` are allowed whatever the policy says; ``forbidden_first_ids`` may not come first.
    """
    mask = policy.plain_mask
    freed = policy.forbidden_ids.intersection(allowed_ids)
    if mask is not None and freed:
        mask = with_tokens(mask, freed)
    gate: TokenGate | None = None
    if policy.follows_bytes:
        gate = PolicyGate(policy, mask, partial(_shown_bytes, tokenizer))
    elif mask is not None:
        gate = StillGate(mask)
    if not forbidden_first_ids:
        return gate
    first = full_mask(policy.vocabulary_size) if mask is None else mask
    return FirstTokenGate(without_tokens(first, sorted(forbidden_first_ids)), gate or StillGate())


def _shown_bytes(tokenizer: PolicyTokenizer, token_id: int) -> bytes:
    """Control tokens stand between the bytes of a text without being part of it."""
    return b"" if token_id in tokenizer.control_ids else tokenizer.token_bytes(token_id)
