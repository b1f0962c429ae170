"""The offline door: a model in this process, many prompts at once, no server and no asyncio."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from ferrum.assembly.model_loading import LoadOptions
from ferrum.assembly.start_model import start_model
from ferrum.core.config import EngineConfig
from ferrum.core.errors import InvalidRequest
from ferrum.core.request import ChatPrompt, InferenceRequest, InferenceResult, Prompt, TextPrompt, TokenPrompt
from ferrum.core.sampling_params import SamplingParams
from ferrum.weights.progress_reporter import ProgressReporter, SilentReporter

Message = Mapping[str, Any]
PlainPrompt = str | Sequence[int] | TextPrompt | TokenPrompt
Sampling = SamplingParams | Sequence[SamplingParams] | None


class OfflineEngine(Protocol):
    """What LLM asks of an engine."""

    def generate(self, requests: Sequence[InferenceRequest]) -> list[InferenceResult]: ...

    def close(self, drain_s: float | None = None) -> None: ...


class LLM:
    """A loaded model. Close it, or use it in a with-statement; safe to use from several threads.

        with LLM("smollm2:135m") as llm:
            print(llm.generate(["The sky is"], SamplingParams(max_tokens=16))[0].text)

    ``model`` is a short name, a file, or a source, as on the command line. ``chat_template`` is Jinja source,
    or the path of a file with it. ``config`` holds sizes and limits. Raises ModelError, InvalidConfig and
    ResourceExhausted.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        threads: int | None = None,
        chat_template: str | Path | None = None,
        config: EngineConfig | None = None,
        reporter: ProgressReporter | None = None,
    ) -> None:
        source = chat_template.read_text() if isinstance(chat_template, Path) else chat_template
        options = LoadOptions(threads=threads, chat_template=source, engine=config or EngineConfig())
        self._engine: OfflineEngine = start_model(str(model), options, reporter or SilentReporter()).engine

    @classmethod
    def over(cls, engine: OfflineEngine) -> Self:
        """An LLM over an engine that somebody else built; closing the LLM closes it."""
        llm = cls.__new__(cls)
        llm._engine = engine
        return llm

    def generate(
        self, prompts: PlainPrompt | Sequence[PlainPrompt], sampling: Sampling = None
    ) -> list[InferenceResult]:
        """Continues every prompt (text or token ids, no template); results in the prompts' order.

        All prompts run together, sharing each step. ``sampling`` is one for all, or one for each prompt.
        Raises InvalidRequest, before anything runs, when one of them cannot be answered.
        """
        return self._answer([_plain_prompt(prompt) for prompt in _as_list(prompts)], sampling)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling: Sampling = None,
        *,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[InferenceResult]:
        """Answers one conversation, or several at once, through the model's chat template."""
        conversations = [messages] if messages and isinstance(messages[0], Mapping) else messages
        kwargs = template_kwargs or {}
        return self._answer(
            [ChatPrompt(each, template_kwargs=kwargs) for each in conversations],  # type: ignore[arg-type]
            sampling,
        )

    def close(self) -> None:
        """Ends running requests and frees the model; idempotent."""
        self._engine.close(0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[InferenceResult]:
        call = uuid.uuid4().hex
        each = _sampling_for_each(sampling, len(prompts))
        return self._engine.generate(
            [
                InferenceRequest(f"llm-{call}-{index}", prompt, params)
                for index, (prompt, params) in enumerate(zip(prompts, each, strict=True))
            ]
        )


def _as_list(prompts: PlainPrompt | Sequence[PlainPrompt]) -> Sequence[Any]:
    """A single prompt as a list of one; a list of numbers is one prompt of token ids."""
    if isinstance(prompts, str | TextPrompt | TokenPrompt):
        return [prompts]
    is_token_ids = bool(prompts) and all(isinstance(entry, int) for entry in prompts)
    return [prompts] if is_token_ids else prompts


def _plain_prompt(prompt: PlainPrompt) -> TextPrompt | TokenPrompt:
    if isinstance(prompt, str):
        return TextPrompt(prompt)
    if isinstance(prompt, TextPrompt | TokenPrompt):
        return prompt
    return TokenPrompt(tuple(prompt))


def _sampling_for_each(sampling: Sampling, count: int) -> list[SamplingParams]:
    if sampling is None or isinstance(sampling, SamplingParams):
        return [sampling or SamplingParams()] * count
    if len(sampling) != count:
        raise InvalidRequest(
            f"{count} prompts but {len(sampling)} SamplingParams; give one, or one for each", "sampling"
        )
    return list(sampling)
