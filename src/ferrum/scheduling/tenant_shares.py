"""How much of the work each tenant has had, so that those who had least come first.

The virtual token counter of Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024.
"""

from __future__ import annotations

from collections import Counter

# What a generated token counts beside one of a prompt, as in the paper.
GENERATED_TOKEN_COST = 2


class TenantShares:
    """Tokens by tenant; None is the tenant of those who name none. Mutated by the scheduler only.

    A tenant who comes back is level with the one who had least of those who are here: being away earns
    nothing. A tenant who is away is forgotten when nobody here had less, so names do not pile up.
    """

    def __init__(self) -> None:
        self._tokens: dict[str | None, int] = {}
        self._num_here: Counter[str | None] = Counter()

    def __len__(self) -> int:
        """Tenants that are remembered."""
        return len(self._tokens)

    def served(self, tenant: str | None) -> int:
        """The tokens a tenant who is here has had, in terms of the others'."""
        return self._tokens[tenant]

    def join(self, tenant: str | None) -> None:
        """A request of the tenant came."""
        if not self._num_here[tenant]:
            self._tokens[tenant] = max(self._tokens.get(tenant, 0), self._least())
        self._num_here[tenant] += 1

    def charge(self, tenant: str | None, num_tokens: int) -> None:
        self._tokens[tenant] += num_tokens

    def leave(self, tenant: str | None) -> None:
        """A request of the tenant ended."""
        self._num_here[tenant] -= 1
        if not self._num_here[tenant]:
            del self._num_here[tenant]
            least = self._least() if self._num_here else max(self._tokens.values())
            away = [each for each in self._tokens if each not in self._num_here]
            for each in away:
                if self._tokens[each] <= least:
                    del self._tokens[each]

    def _least(self) -> int:
        return min((self._tokens[tenant] for tenant, here in self._num_here.items() if here), default=0)
