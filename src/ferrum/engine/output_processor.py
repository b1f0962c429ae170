"""From chosen tokens to text that may be shown: stops, end tokens, whole characters. Knows no callers."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ferrum.core.cache_use import CacheUse
from ferrum.core.draft_use import DraftUse
from ferrum.core.request import FinishReason, InferenceResult, Usage
from ferrum.core.step import SampledToken, ScoredTokens
from ferrum.core.token_gate import forced_tokens, pass_through
from ferrum.core.token_trace import TokenTrace, trace_tokens
from ferrum.engine.answer_look import Look
from ferrum.engine.delta import Delta
from ferrum.engine.logprob_trail import LogprobTrail
from ferrum.scheduling.sequence import SequenceSpec
from ferrum.tokenization.stop_strings import MatchResult, StopMatcher


class TokenDecoder(Protocol):
    """Turns tokens into text piece by piece, holding back bytes that are no whole character yet."""

    def push(self, token_id: int) -> str: ...
    def flush(self) -> str: ...


class OutputUpdate(NamedTuple):
    """What one token added: text that may be shown now, and why the answer ends if it does.

    ``stop_reason``: the caller's stop string or stop token that ended it.
    """

    text: str
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None


class RequestOutput:
    """The growing answer of one request; mutated by the engine's thread only.

    Text of all updates joined is the result's text, so a stream and a whole answer agree.
    """

    __slots__ = (
        "_constraint",
        "_decoder",
        "_digests",
        "_echo",
        "_gate",
        "_look",
        "_looks_for_stops",
        "_pieces",
        "_rules",
        "_spec",
        "_stop_reason",
        "_stops",
        "_terminal_ids",
        "_token_ids",
        "_trail",
    )

    def __init__(
        self,
        spec: SequenceSpec,
        decoder: TokenDecoder,
        stops: StopMatcher,
        trail: LogprobTrail | None = None,
    ) -> None:
        self._spec = spec
        self._rules = spec.stops
        self._terminal_ids = spec.stops.terminal_ids
        self._gate = spec.gate
        self._constraint = spec.constraint
        self._decoder = decoder
        self._stops = stops
        self._looks_for_stops = not stops.is_idle
        self._token_ids: list[int] = []
        self._digests: list[int] = []
        self._trail = trail
        self._echo = spec.prompt_text.text if spec.sampling.echo and spec.prompt_text is not None else ""
        self._pieces: list[str] = [self._echo]
        self._stop_reason: int | str | None = None
        self._look: Look | None = None

    @property
    def look(self) -> Look | None:
        """For an answer that ended by itself: what must be known of it before it is handed out."""
        return self._look

    @property
    def num_tokens(self) -> int:
        return len(self._token_ids)

    def accept(self, token: SampledToken) -> OutputUpdate:
        """Adds a token; the order of the reasons is stop token, end token, stop text, length.

        A stop string that is complete in the text before a stop or end token goes before both. Raises
        ForbiddenToken and MalformedAnswer for a token that the request's gate does not take.
        """
        if self._spec.max_tokens == 0:
            return self._flush("", FinishReason.LENGTH)  # The token was chosen, but nobody asked for one.
        if self._gate is not None:
            self._gate = pass_through(self._gate, token.token_id)
        if self._constraint is not None:
            self._constraint = self._constraint.after(token.token_id)
        self._token_ids.append(token.token_id)
        if token.logit_digest is not None:
            self._digests.append(token.logit_digest)
        if self._trail is not None:
            self._trail.add(token)
        update = self._read(token.token_id)
        self._pieces.append(update.text)
        self._stop_reason = update.stop_reason
        if update.finish_reason is not None:
            self._look = self._begin_look(update.finish_reason)
        return update

    def follow(self) -> OutputUpdate:
        """Adds the tokens that can only come next, as far as the sequence adds them (see SequenceSpec)."""
        text = ""
        room = self._spec.max_tokens - len(self._token_ids)
        for token_id in forced_tokens(self._gate, min(self._spec.most_forced, room)):
            update = self.accept(SampledToken(self._spec.request_id, token_id))
            text += update.text
            if update.finish_reason is not None:
                return OutputUpdate(text, update.finish_reason, update.stop_reason)
        return OutputUpdate(text)

    def accept_prompt(self, scored: ScoredTokens) -> None:
        """What was found of the prompt's tokens."""
        assert self._trail is not None
        self._trail.add_prompt(scored)

    def delta(self, text: str) -> Delta:
        """``text``, which may be shown now, with what belongs to it and was not shown before."""
        if self._echo:
            text, self._echo = self._echo + text, ""
        return Delta(text) if self._trail is None else Delta(text, self._trail.take())

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
            stop_reason=self._stop_reason,
            logprobs=self._trail.answer if self._trail is not None else None,
            prompt_logprobs=self._trail.prompt if self._trail is not None else None,
            cumulative_logprob=self._trail.cumulative if self._trail is not None else None,
        )

    def _trace(self) -> TokenTrace:
        spec = self._spec
        return trace_tokens(spec.prompt_ids, self._token_ids, spec.sampling, spec.max_tokens, spec.seed)

    def flush(self) -> str:
        """Text still held back, for an answer that ends without a reason of its own."""
        text = self._flush("", FinishReason.CANCELLED).text
        self._pieces.append(text)
        return text

    def _read(self, token_id: int) -> OutputUpdate:
        may_end = len(self._token_ids) > self._rules.min_tokens
        if token_id in self._terminal_ids and may_end:
            if token_id in self._rules.stop_ids:
                return self._end_at(token_id, FinishReason.STOP, self._rules.stop_ids[token_id])
            return self._end_at(token_id, FinishReason.EOS, None)
        text = self._decoder.push(token_id)
        if self._looks_for_stops:
            shown = self._stops.push(text) if may_end else self._stops.pass_over(text)
            if shown.stop is not None:
                return self._stopped(shown)
            text = shown.emit
        if self._constraint is not None and self._constraint.is_complete:
            return self._flush(text, FinishReason.EOS)
        if len(self._token_ids) >= self._spec.max_tokens:
            return self._flush(text, FinishReason.LENGTH)
        return OutputUpdate(text)

    def _begin_look(self, reason: FinishReason) -> Look | None:
        """Whether the answer is what was asked for; None where that is not the question.

        One that ran out of tokens says so and is the beginning of such an answer; a stop string may cut a
        text, but no JSON value.
        """
        constraint = self._constraint
        if constraint is None or reason is FinishReason.LENGTH:
            return None
        if not isinstance(self._stop_reason, str):
            return Look(constraint.look())
        if not constraint.is_json:
            return None
        return Look(constraint.look_at("".join(self._pieces[1:])), cut_by=self._stop_reason)

    def _end_at(self, token_id: int, reason: FinishReason, stop_reason: int | str | None) -> OutputUpdate:
        """The answer ends with a token whose text is shown only where the caller wants to see it."""
        shown = MatchResult("")
        if self._rules.shows_stop:
            shown = self._stops.push(self._decoder.push(token_id))
            if shown.stop is not None:
                return self._stopped(shown)
        return self._flush(shown.emit, reason, stop_reason)

    def _flush(self, before: str, reason: FinishReason, stop_reason: int | str | None = None) -> OutputUpdate:
        """The answer ends with ``before`` and all that is held back."""
        for shown in (self._stops.push(self._decoder.flush()), self._stops.flush()):
            before += shown.emit
            if shown.stop is not None:
                return self._stopped(MatchResult(before, shown.stop))
        return OutputUpdate(before, reason, stop_reason)

    def _stopped(self, shown: MatchResult) -> OutputUpdate:
        assert shown.stop is not None
        text = shown.emit + shown.stop if self._rules.shows_stop else shown.emit
        return OutputUpdate(text, FinishReason.STOP, shown.stop)
