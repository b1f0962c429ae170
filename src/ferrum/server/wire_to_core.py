"""From what clients send to what the engine takes."""

from __future__ import annotations

from ferrum.core.errors import InvalidRequest
from ferrum.core.request import ChatPrompt, InferenceRequest, Prompt
from ferrum.core.sampling_params import SamplingParams
from ferrum.server.constraint_fields import constraint_of
from ferrum.server.server_options import ServerOptions
from ferrum.server.wire_schemas import ChatCompletionBody, GenerationBody

# OpenAI's default for plain completions; a chat may fill the context.
COMPLETION_MAX_TOKENS = 16


def sampling_params(body: GenerationBody, max_tokens: int | None, defaults: SamplingParams) -> SamplingParams:
    """What ``body`` asks for, over ``defaults``. Raises InvalidRequest naming the field."""
    # vLLM's clients write -1 for "all".
    top_k = 0 if body.top_k == -1 else body.top_k
    return SamplingParams(
        max_tokens=max_tokens if max_tokens is not None else defaults.max_tokens,
        temperature=body.temperature if body.temperature is not None else defaults.temperature,
        top_k=top_k if top_k is not None else defaults.top_k,
        top_p=body.top_p if body.top_p is not None else defaults.top_p,
        min_p=body.min_p if body.min_p is not None else defaults.min_p,
        seed=body.seed if body.seed is not None else defaults.seed,
        stop=tuple(body.stop) if body.stop is not None else defaults.stop,
        ignore_eos=body.ignore_eos if body.ignore_eos is not None else defaults.ignore_eos,
        stop_token_ids=(
            tuple(body.stop_token_ids) if body.stop_token_ids is not None else defaults.stop_token_ids
        ),
        include_stop_str_in_output=(
            body.include_stop_str_in_output
            if body.include_stop_str_in_output is not None
            else defaults.include_stop_str_in_output
        ),
        skip_special_tokens=(
            body.skip_special_tokens if body.skip_special_tokens is not None else defaults.skip_special_tokens
        ),
        constraint=constraint_of(body),
    )


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
