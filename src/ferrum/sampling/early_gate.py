"""EarlyGate: what may not come at the beginning of an answer."""

from __future__ import annotations

from dataclasses import dataclass

from ferrum.core.errors import FerrumError
from ferrum.core.token_gate import StillGate, TokenGate
from ferrum.core.token_rules import TokenMask


@dataclass(frozen=True, slots=True)
class EarlyGate:
    """Allows what ``mask`` does for the next ``num_tokens`` tokens (at least 1), and all after them."""

    mask: TokenMask
    num_tokens: int

    @property
    def error(self) -> FerrumError | None:
        return None

    def after(self, token_id: int) -> TokenGate:
        return EarlyGate(self.mask, self.num_tokens - 1) if self.num_tokens > 1 else StillGate()
