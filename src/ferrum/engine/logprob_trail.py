"""LogprobTrail: the log-probabilities of one request's tokens, as steps find them."""

from __future__ import annotations

from collections.abc import Sequence

from ferrum.core.logprobs import RowLogprobs, ScoredToken, TokenLogprobs
from ferrum.core.step import SampledToken, ScoredTokens
from ferrum.scheduling.sequence import SequenceSpec
from ferrum.tokenization.stream_decoder import DecodingTokenizer, StreamDecoder


class LogprobTrail:
    """One entry for each token that counts, those too whose text is not shown. Mutated by the engine's thread
    only.

    ``decoder`` is fresh and the trail's own: it tells where in the text a token stands.
    """

    def __init__(self, spec: SequenceSpec, tokenizer: DecodingTokenizer, decoder: StreamDecoder) -> None:
        self._spec = spec
        self._tokenizer = tokenizer
        self._decoder = decoder
        self._num_characters = _num_echoed(spec)
        self._prompt_rows: list[RowLogprobs] = []
        self._answer: list[TokenLogprobs] = []
        self._num_taken = 0
        self._has_taken_prompt = False
        self._cumulative = 0.0

    def add_prompt(self, scored: ScoredTokens) -> None:
        """Rows of the prompt; a request that was preempted may bring some for the second time."""
        num_known = len(self._prompt_rows) - scored.start_position
        self._prompt_rows += scored.rows[num_known:]

    def add(self, token: SampledToken) -> None:
        """A token of the answer."""
        if token.logprobs is None:
            return
        self._cumulative += token.logprobs.logprob
        if self._spec.sampling.logprobs is not None:
            entry = self._entry(token.token_id, self._num_characters, token.logprobs)
            self._answer.append(entry)
            self._num_characters += len(self._decoder.push(token.token_id))

    @property
    def cumulative(self) -> float | None:
        """The sum over the answer's tokens so far; None where nothing asked for them."""
        return None if self._spec.logprobs is None else self._cumulative

    @property
    def answer(self) -> tuple[TokenLogprobs, ...] | None:
        """Of the answer's tokens so far; None where the caller did not ask."""
        return None if self._spec.sampling.logprobs is None else tuple(self._answer)

    @property
    def prompt(self) -> tuple[TokenLogprobs, ...] | None:
        """Of the prompt's tokens so far; None where nobody asked."""
        num_top, prompt = self._spec.prompt_logprobs, self._spec.prompt_text
        if num_top is None or prompt is None:
            return None
        ids, rows = self._spec.prompt_ids, self._prompt_rows
        first = self._entry(ids[0], prompt.offsets[0], None)
        rest = map(self._entry, ids[1:], prompt.offsets[1:], rows)
        return (first, *rest)

    def take(self) -> tuple[TokenLogprobs, ...]:
        """What came since it was taken last, of all that belongs to the answer's text."""
        taken: Sequence[TokenLogprobs] = self._answer[self._num_taken :]
        self._num_taken = len(self._answer)
        if self._spec.sampling.echo and self.answer is not None and not self._has_taken_prompt:
            self._has_taken_prompt = True
            taken = (*(self.prompt or ()), *taken)
        return tuple(taken)

    def _entry(self, token_id: int, text_offset: int, row: RowLogprobs | None) -> TokenLogprobs:
        data, is_control = self._tokenizer.token_bytes(token_id), token_id in self._tokenizer.control_ids
        if row is None:
            return TokenLogprobs(token_id, data, is_control, text_offset, None, None)
        top = tuple(
            ScoredToken(
                each, self._tokenizer.token_bytes(each), each in self._tokenizer.control_ids, logprob, rank
            )
            for rank, (each, logprob) in enumerate(zip(row.top_ids, row.top_logprobs, strict=True), 1)
        )
        return TokenLogprobs(token_id, data, is_control, text_offset, row.logprob, row.rank, top)


def _num_echoed(spec: SequenceSpec) -> int:
    """Characters of the prompt that the answer begins with."""
    return len(spec.prompt_text.text) if spec.sampling.echo and spec.prompt_text is not None else 0
