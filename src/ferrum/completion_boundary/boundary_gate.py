"""BoundaryGate: keeps the model's end tokens out of an answer until it has come far enough."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto

from ferrum.completion_boundary.symbol_pattern import SymbolPattern
from ferrum.completion_boundary.symbols import Symbol, SymbolTokenizer, symbols_of_token
from ferrum.core.errors import MalformedAnswer
from ferrum.core.token_gate import TokenGate
from ferrum.core.token_rules import TokenMask

_REPLACEMENT = "\ufffd"


class Phase(Enum):
    """Where in the answer: before the delimiter's end, right after it, in an envelope, after one, or done."""

    DELIMITER = auto()
    PAYLOAD = auto()
    IN_ENVELOPE = auto()
    AFTER_ENVELOPE = auto()
    SATISFIED = auto()


@dataclass(frozen=True, slots=True)
class EnvelopePatterns:
    """An Envelope (core/completion_boundary.py), ready to be looked for."""

    opener: SymbolPattern
    closer: SymbolPattern
    max_envelopes: int


@dataclass(frozen=True, slots=True)
class BoundaryPlan:
    """What all places of one answer share. ``closed_mask`` forbids the model's end tokens."""

    tokenizer: SymbolTokenizer
    delimiter: SymbolPattern
    envelope: EnvelopePatterns | None
    closed_mask: TokenMask


@dataclass(frozen=True, slots=True)
class BoundaryGate:
    """A place in the answer: the pattern of its phase is matched up to ``num_matched`` symbols.

    ``pending`` are bytes of an unfinished character, ``num_opened`` the envelopes begun so far.
    """

    plan: BoundaryPlan
    phase: Phase = Phase.DELIMITER
    num_matched: int = 0
    num_opened: int = 0
    pending: bytes = b""
    error: MalformedAnswer | None = None

    @property
    def is_satisfied(self) -> bool:
        """Whether the model may end here."""
        if self.phase is Phase.AFTER_ENVELOPE:
            return self.num_matched == 0
        return self.phase is Phase.SATISFIED

    @property
    def mask(self) -> TokenMask | None:
        return None if self.is_satisfied else self.plan.closed_mask

    def after(self, token_id: int) -> TokenGate:
        if self.phase is Phase.SATISFIED:
            return self
        symbols, pending = symbols_of_token(self.plan.tokenizer, self.pending, token_id)
        place = self if pending == self.pending else replace(self, pending=pending)
        for symbol in symbols:
            place = place._after_symbol(symbol)
        return place

    def _after_symbol(self, symbol: Symbol) -> BoundaryGate:
        if self.phase is Phase.DELIMITER:
            return self._look_for(self.plan.delimiter, symbol, Phase.PAYLOAD)
        if self.phase is Phase.PAYLOAD:
            return self._after_payload_symbol(symbol)
        envelope = self.plan.envelope
        if self.phase is Phase.IN_ENVELOPE and envelope is not None:
            return self._look_for(envelope.closer, symbol, Phase.AFTER_ENVELOPE)
        if self.phase is Phase.AFTER_ENVELOPE and envelope is not None:
            return self._after_opener_symbol(envelope, symbol)
        return self

    def _look_for(self, pattern: SymbolPattern, symbol: Symbol, found: Phase) -> BoundaryGate:
        num_matched = pattern.after(self.num_matched, symbol)
        if pattern.is_whole(num_matched):
            return replace(self, phase=found, num_matched=0)
        return self if num_matched == self.num_matched else replace(self, num_matched=num_matched)

    def _after_payload_symbol(self, symbol: Symbol) -> BoundaryGate:
        """What is part of an opener that may still become whole is no payload yet."""
        envelope = self.plan.envelope
        if envelope is None:
            return replace(self, phase=Phase.SATISFIED) if _is_payload(symbol) else self
        following = self._after_opener_symbol(envelope, symbol)
        if following.phase is Phase.IN_ENVELOPE:
            return following
        read = (*envelope.opener.symbols[: self.num_matched], symbol)
        given_up = read[: len(read) - following.num_matched]
        return replace(following, phase=Phase.SATISFIED) if any(map(_is_payload, given_up)) else following

    def _after_opener_symbol(self, envelope: EnvelopePatterns, symbol: Symbol) -> BoundaryGate:
        num_matched = envelope.opener.after(self.num_matched, symbol)
        if not envelope.opener.is_whole(num_matched):
            return replace(self, num_matched=num_matched)
        if self.num_opened == envelope.max_envelopes:
            problem = f"envelope {self.num_opened + 1} begins, and at most {self.num_opened} are allowed"
            return replace(self, error=MalformedAnswer(problem))
        return replace(self, phase=Phase.IN_ENVELOPE, num_matched=0, num_opened=self.num_opened + 1)


def _is_payload(symbol: Symbol) -> bool:
    return isinstance(symbol, str) and not symbol.isspace() and symbol != _REPLACEMENT
