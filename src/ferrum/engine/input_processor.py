"""From a request to token ids and budgets that fit. Knows tokenizer and context, not scheduling."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Protocol

from ferrum.cache.prefix_scope import PrefixScope
from ferrum.core.errors import ChatTemplateError, ContextLengthExceeded, InvalidRequest
from ferrum.core.request import ChatPrompt, InferenceRequest, Prompt, TextPrompt
from ferrum.core.sampling_params import MAX_SEED, SamplingParams
from ferrum.engine.answer_gates import AnswerGates
from ferrum.sampling.request_rules import RuleTokenizer, begin_rules
from ferrum.scheduling.sequence import SequenceSpec
from ferrum.tokenization.decoded_prompt import DecodedPrompt, decode_prompt
from ferrum.tokenization.stop_rules import StopTokenizer, resolve_stops
from ferrum.tokenization.stream_decoder import DecodingTokenizer

ChatEncoder = Callable[[ChatPrompt], Sequence[int]]
"""Renders messages with the model's template and encodes them; raises ChatTemplateError or InvalidRequest."""


class PromptTokenizer(StopTokenizer, RuleTokenizer, DecodingTokenizer, Protocol):
    """What the input side asks of a tokenizer: prompts to ids and back, and which ids end an answer."""

    def encode_prompt(self, text: str) -> list[int]: ...


class InputProcessor:
    """Turns prompts into a SequenceSpec. Stateless; any thread may call it.

    ``capacity``: tokens that prompt and output may have together. ``vocabulary_size``: ids the model can
    read. ``gates``: what may come in an answer.
    """

    def __init__(
        self,
        tokenizer: PromptTokenizer,
        chat_encoder: ChatEncoder | None,
        capacity: int,
        vocabulary_size: int,
        gates: AnswerGates,
    ) -> None:
        self._tokenizer = tokenizer
        self._chat_encoder = chat_encoder
        self._vocabulary_size = vocabulary_size
        self._gates = gates
        self.capacity = capacity

    def prepare(self, request: InferenceRequest) -> SequenceSpec:
        """The request's tokens, budget and seed.

        An explicit max_tokens is never reduced; a missing one becomes the usual one, or what the context
        leaves if that is less. A missing seed is drawn. Raises InvalidRequest (empty or unreadable prompt, a
        stop token that is none), ChatTemplateError, ContextLengthExceeded.
        """
        prompt_ids = tuple(self._encode(request.prompt))
        self._check_ids(prompt_ids)
        sampling = request.sampling
        seed = sampling.seed
        max_tokens = self._output_budget(len(prompt_ids), request)
        stops = resolve_stops(sampling, self._tokenizer, self._vocabulary_size)
        return SequenceSpec(
            request_id=request.request_id,
            prompt_ids=prompt_ids,
            max_tokens=max_tokens,
            is_budget_explicit=sampling.max_tokens is not None or request.usual_max_tokens is not None,
            sampling=request.sampling,
            seed=secrets.randbelow(MAX_SEED + 1) if seed is None else seed,
            scope=PrefixScope(salt=request.cache_salt),
            wants_cache_explanation=request.wants_cache_explanation,
            wants_token_trace=request.wants_token_trace,
            priority=request.priority,
            tenant=request.tenant,
            stops=stops,
            gate=self._gates.gate_for(sampling, stops, max_tokens),
            logprobs=_logprobs(sampling),
            prompt_logprobs=_prompt_logprobs(sampling),
            prompt_text=self._prompt_text(sampling, prompt_ids),
            rules=begin_rules(sampling, prompt_ids, self._tokenizer, self._vocabulary_size),
        )

    def _encode(self, prompt: Prompt) -> Sequence[int]:
        if isinstance(prompt, TextPrompt):
            return self._tokenizer.encode_prompt(prompt.text)
        if isinstance(prompt, ChatPrompt):
            if self._chat_encoder is None:
                raise ChatTemplateError("this model has no chat template; send a plain prompt instead")
            return self._chat_encoder(prompt)
        return prompt.token_ids

    def _prompt_text(self, sampling: SamplingParams, prompt_ids: tuple[int, ...]) -> DecodedPrompt | None:
        if not sampling.echo and sampling.prompt_logprobs is None:
            return None
        shows_control_tokens = not sampling.skip_special_tokens
        return decode_prompt(self._tokenizer, prompt_ids, shows_control_tokens=shows_control_tokens)

    def _check_ids(self, prompt_ids: tuple[int, ...]) -> None:
        if not prompt_ids:
            raise InvalidRequest(
                "must not be empty: this model's tokenizer adds no token of its own", "prompt"
            )
        for token_id in (min(prompt_ids), max(prompt_ids)):
            if not 0 <= token_id < self._vocabulary_size:
                raise InvalidRequest(
                    f"token id {token_id} is outside the vocabulary (0 to {self._vocabulary_size - 1})",
                    "prompt",
                )

    def _output_budget(self, input_tokens: int, request: InferenceRequest) -> int:
        wanted = request.sampling.max_tokens
        if wanted is None:
            wanted = max(1, self.capacity - input_tokens)
            if request.usual_max_tokens is not None:
                wanted = min(wanted, max(request.usual_max_tokens, request.sampling.min_tokens))
        if input_tokens + wanted > self.capacity:
            raise ContextLengthExceeded(self.capacity, input_tokens, wanted)
        return wanted


def _prompt_logprobs(sampling: SamplingParams) -> int | None:
    """What is to be found of the prompt: an echoed one has log-probabilities as the answer has."""
    wanted = (sampling.prompt_logprobs, sampling.logprobs if sampling.echo else None)
    return max((each for each in wanted if each is not None), default=None)


def _logprobs(sampling: SamplingParams) -> int | None:
    """What is to be found of the answer: the best of several is known by it."""
    if sampling.logprobs is None and sampling.num_answers > sampling.n:
        return 0
    return sampling.logprobs
