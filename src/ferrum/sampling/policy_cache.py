"""PolicyCache: one TokenPolicy for each tokenizer, as long as the tokenizer lives."""

from __future__ import annotations

import threading
import weakref
from contextlib import suppress

from ferrum.core.token_policy_level import TokenPolicyLevel
from ferrum.sampling.token_policy import PolicyTokenizer, TokenPolicy

_Key = tuple[int, TokenPolicyLevel]


class PolicyCache:
    """Policies by the identity of their tokenizer, the size of the output layer, and the level.

    Tokenizers are held weakly: one that is gone takes its policies along, so another that comes to lie at its
    address inherits none. One that cannot be held so gets a new policy each time. Any thread may ask.
    """

    def __init__(self) -> None:
        # A dropped tokenizer may call back from the garbage collector of a thread that holds the lock.
        self._lock = threading.RLock()
        self._known: dict[int, tuple[weakref.ref[PolicyTokenizer], dict[_Key, TokenPolicy]]] = {}

    def policy_for(
        self, tokenizer: PolicyTokenizer, vocabulary_size: int, level: TokenPolicyLevel
    ) -> TokenPolicy:
        """The policy of this very tokenizer; made when it is first asked for."""
        with self._lock:
            policies = self._policies_of(tokenizer)
            key = (vocabulary_size, level)
            if key not in policies:
                policies[key] = TokenPolicy(tokenizer, vocabulary_size, level)
            return policies[key]

    @property
    def num_tokenizers(self) -> int:
        return len(self._known)

    def _policies_of(self, tokenizer: PolicyTokenizer) -> dict[_Key, TokenPolicy]:
        address = id(tokenizer)
        reference, policies = self._known.get(address, (None, {}))
        if reference is None or reference() is not tokenizer:
            policies = {}
            with suppress(TypeError):
                self._known[address] = (weakref.ref(tokenizer, self._forget), policies)
        return policies

    def _forget(self, reference: weakref.ref[PolicyTokenizer]) -> None:
        with self._lock:
            self._known = {
                address: entry for address, entry in self._known.items() if entry[0] is not reference
            }
