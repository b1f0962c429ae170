"""Which tokens of a vocabulary are kept out of every answer, as masks. Knows no requests and no steps.

VOCABULARY forbids ids that stand for nothing: those from the tokenizer's vocabulary up (an output layer is
often wider) and holes in it. A model that answers as it was trained to never chooses one, so this changes no
token of it. STRICT forbids more, and can change answers:

- the beginning, unknown, padding, separator, class and mask tokens, and tokens spelled like them;
- bracketed reserved and unused tokens, and control tokens that nobody named;
- replacement characters and bytes that cannot become text where they stand.

End tokens, stops, and control tokens that are named (the list below, or by the request) are always allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

import numpy as np

from ferrum.core.token_gate import full_mask, without_tokens
from ferrum.core.token_policy_level import TokenPolicyLevel
from ferrum.core.token_rules import TokenMask
from ferrum.sampling.forbidden_texts import SPELLINGS, is_forbidden_text
from ferrum.sampling.utf8_fragments import after_bytes, is_continuation, is_fragment

# Control tokens that answers are made of, where a vocabulary has them.
GENERATED_CONTROL_TEXTS = (
    "<think>",
    "</think>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "</s>",
)
# Ids from here up are not looked at one by one.
SCAN_LIMIT = 262_144
_MOST_PENDING_MASKS = 256


class PolicyTokenizer(Protocol):
    """What a policy is made of; see Tokenizer."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def eos_ids(self) -> Collection[int]: ...
    @property
    def control_ids(self) -> Collection[int]: ...
    @property
    def role_ids(self) -> Collection[int]: ...
    @property
    def unused_ids(self) -> Collection[int]: ...
    def token_id(self, text: str) -> int | None: ...
    def token_bytes(self, token_id: int) -> bytes: ...


class TokenPolicy:
    """The masks of one tokenizer, one output layer and one level. Keeps nothing of the tokenizer alive.

    ``forbidden_ids`` are those that no answer may have; ``plain_mask`` forbids them, and what cannot begin a
    text, None where nothing is forbidden. Mutates only the masks that it works out once and keeps.
    """

    def __init__(self, tokenizer: PolicyTokenizer, vocabulary_size: int, level: TokenPolicyLevel) -> None:
        self.level = level
        self.vocabulary_size = vocabulary_size
        self._continuations: dict[int, bytes] = {}
        forbidden: frozenset[int] = frozenset()
        if level is not TokenPolicyLevel.OFF:
            allowed = frozenset(tokenizer.eos_ids) | single_tokens(tokenizer, GENERATED_CONTROL_TEXTS)
            forbidden = frozenset(self._find_forbidden(tokenizer)) - allowed
        self.forbidden_ids = frozenset(token_id for token_id in forbidden if token_id < vocabulary_size)
        self.plain_mask = self._mask_without(self.forbidden_ids | self._continuations.keys())
        self._pending_masks: dict[bytes, TokenMask | None] = {b"": self.plain_mask}

    @property
    def follows_bytes(self) -> bool:
        """Whether what may come depends on the bytes that came."""
        return self.level is TokenPolicyLevel.STRICT

    def mask_after(self, pending: bytes) -> TokenMask | None:
        """What may come after the unfinished character ``pending``: only bytes that go on with it.

        A vocabulary that has none of them goes on as after a whole one.
        """
        known = self._pending_masks
        if pending in known:
            return known[pending]
        if len(known) >= _MOST_PENDING_MASKS:
            # Replaced and not emptied: another engine's thread may be reading it.
            self._pending_masks = known = {b"": self.plain_mask}
        mask = known[pending] = self._make_pending_mask(pending)
        return mask

    def _find_forbidden(self, tokenizer: PolicyTokenizer) -> Iterable[int]:
        unused = frozenset(tokenizer.unused_ids)
        # A vocabulary of which no id has a text says nothing of what its ids stand for.
        if len(unused) < tokenizer.vocab_size:
            yield from unused
        yield from range(tokenizer.vocab_size, self.vocabulary_size)
        if self.level is TokenPolicyLevel.STRICT:
            yield from tokenizer.role_ids
            yield from (token_id for text in SPELLINGS if (token_id := tokenizer.token_id(text)) is not None)
            yield from tokenizer.control_ids
            yield from self._scan(tokenizer, unused | frozenset(tokenizer.control_ids))

    def _scan(self, tokenizer: PolicyTokenizer, known: frozenset[int]) -> Iterable[int]:
        """Looks at the bytes of every other token, and notes those that cannot begin a text."""
        for token_id in range(min(tokenizer.vocab_size, self.vocabulary_size, SCAN_LIMIT)):
            if token_id in known:
                continue
            data = tokenizer.token_bytes(token_id)
            try:
                is_forbidden = is_forbidden_text(data.decode())
            except UnicodeDecodeError:
                is_forbidden = not is_fragment(data)
            if is_forbidden:
                yield token_id
            elif data and is_continuation(data[0]):
                self._continuations[token_id] = data

    def _mask_without(self, token_ids: Collection[int]) -> TokenMask | None:
        return without_tokens(full_mask(self.vocabulary_size), sorted(token_ids)) if token_ids else None

    def _make_pending_mask(self, pending: bytes) -> TokenMask | None:
        fitting = [
            token_id
            for token_id, data in self._continuations.items()
            if after_bytes(pending, data) is not None
        ]
        if not fitting:
            return self.plain_mask
        return only_tokens(self.vocabulary_size, fitting)


def single_tokens(tokenizer: PolicyTokenizer, texts: Iterable[str]) -> frozenset[int]:
    """The ids of those texts that are one token of the vocabulary each."""
    found = (tokenizer.token_id(text) for text in texts)
    return frozenset(token_id for token_id in found if token_id is not None)


def only_tokens(vocabulary_size: int, token_ids: Collection[int]) -> TokenMask:
    """A mask that allows these tokens and no other."""
    return with_tokens(np.zeros_like(full_mask(vocabulary_size)), token_ids)


def with_tokens(mask: TokenMask, token_ids: Collection[int]) -> TokenMask:
    """A copy that allows these tokens too; it cannot be changed by mistake."""
    ids = np.asarray(sorted(token_ids), dtype=np.int64)
    copy = mask.copy()
    np.bitwise_or.at(copy, ids // 32, np.uint32(1) << (ids % 32).astype(np.uint32))
    copy.setflags(write=False)
    return copy
