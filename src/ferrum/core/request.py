"""A request as the engine takes it, and its answers. Knows nothing of HTTP, tokenizers or scheduling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ferrum.core.cache_use import CacheExplanation
from ferrum.core.draft_use import DraftUse
from ferrum.core.errors import InvalidRequest
from ferrum.core.logprobs import TokenLogprobs
from ferrum.core.sampling_params import SamplingParams
from ferrum.core.token_trace import TokenTrace


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Plain text, encoded with the tokenizer's own beginning token; one written at its start is that one.

    Nothing else in it becomes a control token.
    """

    text: str


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Token ids, used as they are."""

    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Messages for the model's chat template (OpenAI's message objects: role, content, ...).

    ``template_kwargs`` reach the template as variables. With ``continue_final_message`` the last message
    (an assistant's) is left open for the model to go on with; otherwise a new assistant turn is opened.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    continue_final_message: bool = False


Prompt = TextPrompt | TokenPrompt | ChatPrompt

LONGEST_TIMEOUT_S = 86_400


def _is_real(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """One thing to answer. ``request_id`` is unique among active requests.

    ``cache_salt``: computed prompts are shared only with requests of the same salt, so that their timing
    tells nothing to others; None = with all that have none. ``wants_cache_explanation``: the result says why
    no more of the prompt was found in the cache (debugging). ``wants_token_trace``: the result carries
    evidence of its tokens. ``usual_max_tokens``: the most where the sampling names no ``max_tokens``,
    lowered to what the context leaves; None = all of that. ``timeout_s`` after it arrived the request ends:
    with DeadlineExceeded, or with what there is once there is a token. ``priority``: lower numbers first,
    where the scheduling policy looks at them. ``tenant``: on whose account it runs, where tenants get equal
    shares.
    """

    request_id: str
    prompt: Prompt
    sampling: SamplingParams = SamplingParams()
    cache_salt: str | None = None
    wants_cache_explanation: bool = False
    wants_token_trace: bool = False
    usual_max_tokens: int | None = None
    timeout_s: float | None = None
    priority: int = 0
    tenant: str | None = None

    def __post_init__(self) -> None:
        """Raises InvalidRequest for a salt or tenant that is no text or empty, a timeout that is no time, a
        priority that is no integer.
        """
        timeout_s = self.timeout_s
        if timeout_s is not None and not (_is_real(timeout_s) and 0 < timeout_s <= LONGEST_TIMEOUT_S):
            raise InvalidRequest(
                f"must be seconds above 0 and at most {LONGEST_TIMEOUT_S}, not {timeout_s!r}; "
                "leave it out to wait as long as it takes",
                param="timeout_s",
            )
        if isinstance(self.priority, bool) or not isinstance(self.priority, int):
            raise InvalidRequest(f"must be an integer, not {self.priority!r}", param="priority")
        for param, value in (("cache_salt", self.cache_salt), ("tenant", self.tenant)):
            if value is not None and (not isinstance(value, str) or not value):
                raise InvalidRequest(
                    f"must be a text that is not empty, not {value!r}; leave it out to share with all",
                    param=param,
                )


class FinishReason(StrEnum):
    """Why an answer ended. EOS and STOP both read "stop" on the OpenAI wire; TIMEOUT is the request's own."""

    EOS = "eos"
    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request. Completion counts every generated token, the end token included.

    ``cached_tokens`` of the prompt were found in the prefix cache and not computed.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0

    @classmethod
    def of_answers(cls, usages: Sequence[Usage]) -> Usage:
        """Of one request with these answers: its prompt once, and of it what was cached before any of them
        was begun.
        """
        return cls(
            usages[0].prompt_tokens,
            sum(usage.completion_tokens for usage in usages),
            min(usage.cached_tokens for usage in usages),
        )


@dataclass(frozen=True, slots=True)
class InferenceResult:
    """A finished answer: its text, the ids behind it, and the seed that reproduces it.

    ``stop_reason``: the caller's stop string or stop token that ended it; None for the model's own end and
    for everything else, as vLLM reports it. ``logprobs``: one entry for each of ``token_ids``, and
    ``prompt_logprobs`` one for each of the prompt's; None where they were not asked for.
    ``cumulative_logprob``: the sum over ``token_ids``, where anything asked for it.

    Of a request for several answers this is the first one, ``alternatives`` are the others. Each is written
    under an id and a seed of its own and has its own ``usage``, but for the first: its usage is the whole
    request's, the prompt counted once.
    """

    request_id: str
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    usage: Usage
    seed: int
    logit_digests: tuple[int, ...] = ()
    cache_explanation: CacheExplanation | None = None
    token_trace: TokenTrace | None = None
    stop_reason: int | str | None = None
    draft_use: DraftUse = field(default_factory=DraftUse)
    logprobs: tuple[TokenLogprobs, ...] | None = None
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None
    cumulative_logprob: float | None = None
    alternatives: tuple[InferenceResult, ...] = ()

    @property
    def answers(self) -> tuple[InferenceResult, ...]:
        """All answers of the request, this one first."""
        return (self, *self.alternatives)


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """A piece of a streamed answer. The last one carries ``result`` and no text; the rest carry text, and the
    ``logprobs`` of its tokens if they were asked for: those of all chunks are those of the result, preceded
    by the prompt's where it is echoed. ``index``: of several answers to a request, which one it belongs to;
    each has a last chunk, with its own result and usage.
    """

    text: str
    result: InferenceResult | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    index: int = 0
