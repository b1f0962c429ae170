"""From what clients send to what the engine takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ferrum.core.completion_boundary import boundary_from_mapping
from ferrum.core.errors import InvalidRequest
from ferrum.core.request import ChatPrompt, InferenceRequest, Prompt
from ferrum.core.sampling_params import SamplingParams
from ferrum.server.constraint_fields import constraint_of
from ferrum.server.server_options import ServerOptions
from ferrum.server.wire_schemas import ChatCompletionBody, CompletionBody, GenerationBody

# OpenAI's default for plain completions; a chat may fill the context.
COMPLETION_MAX_TOKENS = 16


# Fields that mean in a body what they mean in SamplingParams.
_SAME_NAMES = (
    "temperature",
    "top_p",
    "min_p",
    "seed",
    "ignore_eos",
    "include_stop_str_in_output",
    "skip_special_tokens",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "typical_p",
    "top_n_sigma",
    "xtc_probability",
    "xtc_threshold",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dynatemp_range",
    "dynatemp_exponent",
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
    "min_tokens",
    "n",
    "best_of",
    "prompt_logprobs",
)
_LISTS = (
    "stop",
    "stop_token_ids",
    "dry_sequence_breakers",
    "allowed_token_ids",
    "bad_words",
    "forbidden_first_texts",
    "control_texts",
)
_WINDOWS = ("repeat_last_n", "dry_penalty_last_n")


def sampling_params(body: GenerationBody, max_tokens: int | None, defaults: SamplingParams) -> SamplingParams:
    """What ``body`` asks for, over ``defaults``. Raises InvalidRequest naming the field."""
    asked: dict[str, Any] = {name: getattr(body, name) for name in _SAME_NAMES}
    asked["max_tokens"] = max_tokens
    asked["constraint"] = constraint_of(body)
    # Clients of vLLM and llama.cpp write -1 for "all".
    asked["top_k"] = 0 if body.top_k == -1 else body.top_k
    for name in _LISTS:
        value = getattr(body, name)
        asked[name] = None if value is None else tuple(value)
    asked["logit_bias"] = None if body.logit_bias is None else _by_token_id(body.logit_bias)
    if body.completion_boundary is not None:
        asked["completion_boundary"] = boundary_from_mapping(body.completion_boundary)
    asked = {name: value for name, value in asked.items() if value is not None}
    for name in _WINDOWS:
        if (value := getattr(body, name)) is not None:
            asked[name] = None if value == -1 else value
    if body.stream and body.prompt_logprobs is not None:
        raise InvalidRequest("cannot be streamed; leave stream out", param="prompt_logprobs")
    return replace(defaults, **asked)


def chat_sampling(body: ChatCompletionBody, defaults: SamplingParams) -> SamplingParams:
    """``sampling_params`` and what is a chat's own. Raises InvalidRequest naming the field."""
    max_tokens = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    if max_tokens == 0:
        raise InvalidRequest("must be at least 1: a chat without an answer is none", param="max_tokens")
    if body.top_logprobs and not body.logprobs:
        raise InvalidRequest("is allowed only together with logprobs=true", param="top_logprobs")
    sampling = sampling_params(body, max_tokens, defaults)
    return replace(sampling, logprobs=body.top_logprobs or 0) if body.logprobs else sampling


def completion_sampling(body: CompletionBody, defaults: SamplingParams) -> SamplingParams:
    """``sampling_params`` and what is a plain completion's own. Raises InvalidRequest naming the field."""
    sampling = sampling_params(body, body.max_tokens, defaults)
    return replace(sampling, logprobs=body.logprobs, echo=bool(body.echo))


def _by_token_id(biases: Mapping[str, float]) -> dict[int, float]:
    """OpenAI's object, whose keys are ids written as texts."""
    by_id: dict[int, float] = {}
    for key, bias in biases.items():
        if not (key.isascii() and key.isdecimal() and len(key) <= 10):
            raise InvalidRequest(f"{key!r} is no token id; keys are ids of tokens", param="logit_bias")
        by_id[int(key)] = bias
    return by_id


def inference_request(
    request_id: str,
    prompt: Prompt,
    sampling: SamplingParams,
    body: GenerationBody,
    options: ServerOptions,
    tenant: str | None,
) -> InferenceRequest:
    """``prompt`` with what ``body`` says of cache, evidence and turn. Raises InvalidRequest for what this
    server denies.
    """
    if body.explain_cache and not options.explains_cache:
        raise InvalidRequest(
            "is off on this server; start it with --debug-prefix-cache", param="explain_cache"
        )
    return InferenceRequest(
        request_id,
        prompt,
        sampling,
        cache_salt=body.cache_salt,
        wants_cache_explanation=bool(body.explain_cache),
        wants_token_trace=bool(body.token_trace),
        usual_max_tokens=COMPLETION_MAX_TOKENS if isinstance(body, CompletionBody) else None,
        timeout_s=body.timeout_s,
        priority=body.priority or 0,
        tenant=tenant,
    )


def chat_prompt(body: ChatCompletionBody) -> ChatPrompt:
    """The messages of ``body``, not checked yet. Raises InvalidRequest for flags that contradict."""
    is_continued = bool(body.continue_final_message)
    opens_turn = body.add_generation_prompt if body.add_generation_prompt is not None else not is_continued
    if is_continued == opens_turn:
        raise InvalidRequest(
            "exactly one of add_generation_prompt and continue_final_message must be true",
            param="add_generation_prompt",
        )
    return ChatPrompt(
        body.messages, template_kwargs=body.chat_template_kwargs or {}, continue_final_message=is_continued
    )
