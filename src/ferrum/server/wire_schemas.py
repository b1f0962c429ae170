"""The bodies of OpenAI's requests, as far as they have an effect here. Null means the default, as if absent.

Strict: "0.5" is no number and 1.5 no count. Fields nobody knows stay in ``model_extra`` and are ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ferrum.core.errors import InvalidRequest

_REPETITION_PENALTY = AliasChoices("repetition_penalty", "repeat_penalty")


def _string_as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _false_as_none(value: object) -> object:
    return None if value is False else value


class StreamOptions(BaseModel):
    """``include_usage``: one more chunk, without choices, carries the token counts."""

    model_config = ConfigDict(strict=True, extra="ignore")

    include_usage: bool | None = None


class GenerationBody(BaseModel):
    """What chat and plain completions share. ``top_k``, ``min_p``, ``ignore_eos``, ``stop_token_ids``,
    ``include_stop_str_in_output``, ``skip_special_tokens``, ``cache_salt`` (vLLM's names), ``priority``
    (vLLM's too), ``repetition_penalty``, ``allowed_token_ids``, ``bad_words``, ``min_tokens``, ``best_of``,
    ``prompt_logprobs``, ``structured_outputs`` (vLLM's), ``repeat_penalty`` (the same as
    ``repetition_penalty``), ``repeat_last_n`` and from ``typical_p`` to ``mirostat_eta`` (llama.cpp's),
    ``completion_boundary``, ``forbidden_first_texts``, ``control_texts``, ``timeout_s``, ``explain_cache``
    and ``token_trace`` extend OpenAI's.
    """

    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: Annotated[list[str] | None, BeforeValidator(_string_as_list)] = None
    ignore_eos: bool | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    repetition_penalty: float | None = Field(None, validation_alias=_REPETITION_PENALTY)
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_last_n: int | None = None
    typical_p: float | None = None
    top_n_sigma: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: list[str] | None = None
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    min_tokens: int | None = None
    n: int | None = None
    best_of: int | None = None
    prompt_logprobs: int | None = None
    completion_boundary: dict[str, Any] | None = None
    forbidden_first_texts: list[str] | None = None
    control_texts: list[str] | None = None
    cache_salt: str | None = None
    explain_cache: bool | None = None
    token_trace: bool | None = None
    timeout_s: float | None = None
    priority: int | None = None
    user: str | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None


class ChatCompletionBody(GenerationBody):
    """POST /v1/chat/completions. ``messages`` is checked by the chat package; of ``metadata`` only the name
    of a session is read.
    """

    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    metadata: Any = None


class CompletionBody(GenerationBody):
    """POST /v1/completions. ``prompt`` has four forms and is checked by completion_prompts.py."""

    prompt: Any = None
    logprobs: Annotated[int | None, BeforeValidator(_false_as_none)] = None
    echo: bool | None = None


Body = TypeVar("Body", bound=GenerationBody)
Model = TypeVar("Model", bound=BaseModel)


def validated(model: type[Model], content: dict[str, Any]) -> Model:
    """``content`` as ``model``. Raises InvalidRequest that names the first wrong field."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise InvalidRequest(_problem(first["type"], first["msg"]), param=_path(first["loc"])) from None


def parse_body(body_type: type[Body], content: dict[str, Any]) -> Body:
    """A request to generate. Raises InvalidRequest that names the first wrong field."""
    body = validated(body_type, content)
    if body.stream_options is not None and not body.stream:
        raise InvalidRequest("is allowed only together with stream=true", param="stream_options")
    return body


def _problem(kind: str, message: str) -> str:
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        return "is no field of this request"
    return message[:1].lower() + message[1:]


def _path(location: tuple[int | str, ...]) -> str:
    """("messages", 0, "content") as messages[0].content."""
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path
