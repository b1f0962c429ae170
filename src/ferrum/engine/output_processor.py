"""From chosen tokens to text that may be shown: stops, end tokens, whole characters. Knows no callers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from ferrum.core.cache_use import CacheUse
from ferrum.core.drafting import DraftUse
from ferrum.core.request import FinishReason, InferenceResult, Usage
from ferrum.core.step import SampledToken
from ferrum.core.token_trace import TokenTrace, trace_tokens
from ferrum.scheduling.sequence import SequenceSpec
from ferrum.tokenization.stop_strings import StopMatcher


class TokenDecoder(Protocol):
    """Turns tokens into text piece by piece, holding back bytes that are no whole character yet."""

    def push(self, token_id: int) -> str: ...
    def flush(self) -> str: ...


@dataclass(frozen=True, slots=True)
class OutputUpdate:
    """What one token added: text that may be shown now, and why the answer ends if it does."""

    text: str
    finish_reason: FinishReason | None


class RequestOutput:
    """The growing answer of one request; mutated by the engine's thread only.

    Text of all updates joined is the result's text, so a stream and a whole answer agree.
    """

    def __init__(
        self, spec: SequenceSpec, end_ids: Collection[int], decoder: TokenDecoder, stops: StopMatcher
    ) -> None:
        self._spec = spec
        self._end_ids = () if spec.sampling.ignore_eos else end_ids
        self._decoder = decoder
        self._stops = stops
        self._token_ids: list[int] = []
        self._digests: list[int] = []
        self._pieces: list[str] = []

    @property
    def num_tokens(self) -> int:
        return len(self._token_ids)

    def accept(self, token: SampledToken) -> OutputUpdate:
        """Adds a token; the order of the reasons is stop text, end token, length."""
        self._token_ids.append(token.token_id)
        if token.logit_digest is not None:
            self._digests.append(token.logit_digest)
        text, reason = self._read(token.token_id)
        self._pieces.append(text)
        return OutputUpdate(text, reason)

    def result(
        self, reason: FinishReason, cache_use: CacheUse = CacheUse(), draft_use: DraftUse = DraftUse()
    ) -> InferenceResult:
        """The answer so far; ``cache_use``: what of the prompt was not computed, ``draft_use``: what became
        of tokens that were drafted.
        """
        return InferenceResult(
            request_id=self._spec.request_id,
            text="".join(self._pieces),
            token_ids=tuple(self._token_ids),
            finish_reason=reason,
            usage=Usage(len(self._spec.prompt_ids), len(self._token_ids), cache_use.cached_tokens),
            seed=self._spec.seed,
            logit_digests=tuple(self._digests),
            cache_explanation=cache_use.explanation,
            draft_use=draft_use,
            token_trace=self._trace() if self._spec.wants_token_trace else None,
        )

    def _trace(self) -> TokenTrace:
        spec = self._spec
        return trace_tokens(spec.prompt_ids, self._token_ids, spec.sampling, spec.max_tokens, spec.seed)

    def flush(self) -> str:
        """Text still held back, for an answer that ends without a reason of its own."""
        text, _ = self._flush(FinishReason.CANCELLED)
        self._pieces.append(text)
        return text

    def _read(self, token_id: int) -> tuple[str, FinishReason | None]:
        if token_id in self._end_ids:
            return self._flush(FinishReason.EOS)
        shown = self._stops.push(self._decoder.push(token_id))
        if shown.is_match:
            return shown.emit, FinishReason.STOP
        if len(self._token_ids) >= self._spec.max_tokens:
            rest, reason = self._flush(FinishReason.LENGTH)
            return shown.emit + rest, reason
        return shown.emit, None

    def _flush(self, reason: FinishReason) -> tuple[str, FinishReason]:
        shown = self._stops.push(self._decoder.flush())
        if shown.is_match:
            return shown.emit, FinishReason.STOP
        rest = self._stops.flush()
        return shown.emit + rest.emit, FinishReason.STOP if rest.is_match else reason
