"""From the boundary a request asks for to the gate that keeps it, for one model."""

from __future__ import annotations

from collections.abc import Collection

from ferrum.completion_boundary.boundary_gate import BoundaryGate, BoundaryPlan, EnvelopePatterns
from ferrum.completion_boundary.symbol_pattern import SymbolPattern
from ferrum.completion_boundary.symbols import SymbolTokenizer, symbols_of_text
from ferrum.core.completion_boundary import PARAM, CompletionBoundary, Envelope, Immediate
from ferrum.core.errors import InvalidRequest
from ferrum.core.token_gate import full_mask, without_tokens


def compile_boundary(
    boundary: CompletionBoundary,
    tokenizer: SymbolTokenizer,
    end_ids: Collection[int],
    vocabulary_size: int,
    max_tokens: int,
) -> BoundaryGate | None:
    """The gate at the beginning of an answer; None where the model may end at once.

    That is so, too, where it cannot end at all: ``end_ids`` are its end tokens. Raises InvalidRequest for a
    text without tokens or with an end token in it, and for ``max_tokens`` that leave nothing behind the
    delimiter.
    """
    if isinstance(boundary, Immediate):
        return None
    for text in boundary.texts:
        _require_tokens(text, token_ids_of(tokenizer, text), end_ids)
    num_tokens = len(token_ids_of(tokenizer, boundary.delimiter))
    if max_tokens <= num_tokens:
        raise InvalidRequest(
            f"{boundary.delimiter!r} takes {num_tokens} tokens, and max_tokens is {max_tokens}; raise it",
            f"{PARAM}.delimiter",
        )
    inside = [token_id for token_id in end_ids if token_id < vocabulary_size]
    if not inside:
        return None
    return BoundaryGate(
        BoundaryPlan(
            tokenizer=tokenizer,
            delimiter=SymbolPattern.of(symbols_of_text(tokenizer, boundary.delimiter)),
            envelope=None if boundary.envelope is None else _patterns(tokenizer, boundary.envelope),
            closed_mask=without_tokens(full_mask(vocabulary_size), inside),
        )
    )


def _patterns(tokenizer: SymbolTokenizer, envelope: Envelope) -> EnvelopePatterns:
    return EnvelopePatterns(
        SymbolPattern.of(symbols_of_text(tokenizer, envelope.open_text)),
        SymbolPattern.of(symbols_of_text(tokenizer, envelope.close_text)),
        envelope.max_envelopes,
    )


def token_ids_of(tokenizer: SymbolTokenizer, text: str) -> list[int]:
    """The token that the vocabulary spells so, else the tokens that the text is encoded to."""
    token_id = tokenizer.token_id(text)
    return tokenizer.encode(text) if token_id is None else [token_id]


def _require_tokens(text: str, token_ids: list[int], end_ids: Collection[int]) -> None:
    if not token_ids:
        raise InvalidRequest(f"{text!r} is no token and no tokens of this model's vocabulary", PARAM)
    conflicts = sorted(set(token_ids) & set(end_ids))
    if conflicts:
        raise InvalidRequest(
            f"{text!r} has token {conflicts[0]} in it, which ends this model's answers", PARAM
        )
