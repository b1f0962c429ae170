"""AnswerMaker: the answers that are to be written for a checked request, each with its own output."""

from __future__ import annotations

from collections.abc import Sequence

from ferrum.core.request import ChatPrompt, InferenceRequest, Prompt
from ferrum.engine.active_request import ActiveRequest
from ferrum.engine.answers import answer_specs
from ferrum.engine.delivery import Outlet
from ferrum.engine.logprob_trail import LogprobTrail
from ferrum.engine.output_processor import RequestOutput
from ferrum.scheduling.sequence import SequenceSpec
from ferrum.tokenization.stop_strings import StopMatcher
from ferrum.tokenization.stream_decoder import DecodingTokenizer, StreamDecoder


class AnswerMaker:
    """Any thread may call it."""

    def __init__(self, tokenizer: DecodingTokenizer) -> None:
        self._tokenizer = tokenizer

    def make(
        self, request: InferenceRequest, spec: SequenceSpec, outlets: Sequence[Outlet], submitted_at: float
    ) -> list[ActiveRequest]:
        """An answer for each outlet. ``submitted_at``: when the request came, in monotonic seconds."""
        answers = []
        for each, outlet in zip(answer_specs(spec, len(outlets)), outlets, strict=True):
            output = RequestOutput(
                each,
                self._decoder(request, each),
                StopMatcher(each.stops.texts),
                self._logprob_trail(request, each),
            )
            answers.append(
                ActiveRequest(each, output, outlet, submitted_at, request.prompt, request.timeout_s)
            )
        if len(answers) > 1:
            for answer in answers:
                answer.group = tuple(answers)
        return answers

    def _decoder(self, request: InferenceRequest, spec: SequenceSpec) -> StreamDecoder:
        preceding_ids = spec.prompt_ids if _continues_text(request.prompt) else ()
        return StreamDecoder(
            self._tokenizer, preceding_ids, shows_control_tokens=not request.sampling.skip_special_tokens
        )

    def _logprob_trail(self, request: InferenceRequest, spec: SequenceSpec) -> LogprobTrail | None:
        if spec.logprobs is None and spec.prompt_logprobs is None:
            return None
        return LogprobTrail(spec, self._tokenizer, self._decoder(request, spec))


def _continues_text(prompt: Prompt) -> bool:
    """Whether the answer goes on in the middle of a text, rather than being a text of its own."""
    return not isinstance(prompt, ChatPrompt) or prompt.continue_final_message
