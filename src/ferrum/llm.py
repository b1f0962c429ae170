"""The offline door: a model in this process, many prompts at once, no server and no asyncio."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from ferrum.assembly.model_loading import LoadOptions
from ferrum.assembly.start_model import start_model
from ferrum.core.config import EngineConfig
from ferrum.core.errors import InvalidConfig, InvalidRequest
from ferrum.core.request import ChatPrompt, InferenceRequest, InferenceResult, Prompt, TextPrompt, TokenPrompt
from ferrum.core.sampling_params import SamplingParams
from ferrum.engine.prefix_pins import PrefixPins
from ferrum.weights.progress_reporter import ProgressReporter, SilentReporter

Message = Mapping[str, Any]
PlainPrompt = str | Sequence[int] | TextPrompt | TokenPrompt
Sampling = SamplingParams | Sequence[SamplingParams] | None


class OfflineEngine(Protocol):
    """What LLM asks of an engine."""

    def generate(self, requests: Sequence[InferenceRequest]) -> list[InferenceResult]: ...

    def close(self, drain_s: float | None = None) -> None: ...

    @property
    def pins(self) -> PrefixPins: ...


class LLM:
    """A loaded model; safe to use from several threads. Its memory is freed by ``close``, at the end of a
    with-statement, or with the last reference to it.

        with LLM("smollm2:135m") as llm:
            print(llm.generate(["The sky is"], SamplingParams(max_tokens=16))[0].text)

    ``model`` is a short name, a file, or a source, as on the command line. ``chat_template`` is Jinja source,
    or the path of a file with it. ``config`` holds sizes and limits. ``executor`` "transformers" runs any
    causal LM in a Hugging Face folder as transformers computes it, with the extra of that name. Raises
    ModelError, InvalidConfig, UnknownComponent and ResourceExhausted.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        threads: int | None = None,
        chat_template: str | Path | None = None,
        config: EngineConfig | None = None,
        executor: str = "llm",
        reporter: ProgressReporter | None = None,
    ) -> None:
        source = _template_source(chat_template)
        options = LoadOptions(threads=threads, chat_template=source, engine=config or EngineConfig())
        self._engine: OfflineEngine = start_model(
            str(model), options, reporter or SilentReporter(), executor
        ).engine
        # A notebook that loads a model again under the same name must not keep both.
        weakref.finalize(self, self._engine.close, 0.0)

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

        All prompts run together, sharing each step. ``sampling`` is one for all, or one for each prompt. With
        ``n`` above 1 a result has the further answers to its prompt in ``alternatives``.
        Raises InvalidRequest, before anything runs, when one of them cannot be answered.
        """
        return self._answer(
            [_plain_prompt(prompt, index) for index, prompt in enumerate(_as_list(prompts))], sampling
        )

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling: Sampling = None,
        *,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[InferenceResult]:
        """Answers one conversation, or several at once, through the model's chat template."""
        listed = _entries(messages, "messages", "a list of message objects, or a list of such lists")
        conversations = [listed] if listed and isinstance(listed[0], Mapping) else listed
        kwargs = {} if template_kwargs is None else template_kwargs
        if not isinstance(kwargs, Mapping):
            raise InvalidRequest(f"must be a mapping, not {_kind(kwargs)}", "template_kwargs")
        return self._answer([ChatPrompt(each, template_kwargs=kwargs) for each in conversations], sampling)

    @property
    def pins(self) -> PrefixPins:
        """Prompts that stay computed, and can be saved and restored.

            llm.pins.pin("rules", TextPrompt(long_system_prompt))
            llm.pins.save("rules", "rules.kv")

        Later prompts that begin alike need not compute them.
        """
        return self._engine.pins

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
    listed = _entries(prompts, "prompts", "a text, a list of token ids, or a list of such prompts")
    return [listed] if listed and all(map(_is_token_id, listed)) else listed


def _plain_prompt(prompt: Any, index: int) -> TextPrompt | TokenPrompt:
    if isinstance(prompt, str):
        return TextPrompt(prompt)
    if isinstance(prompt, TextPrompt):
        return prompt
    ids = prompt.token_ids if isinstance(prompt, TokenPrompt) else prompt
    name = f"prompts[{index}]"
    listed = _entries(ids, name, "a text or a list of token ids")
    if not all(map(_is_token_id, listed)):
        odd = next(each for each in listed if not _is_token_id(each))
        raise InvalidRequest(f"token ids must be integers, not {_kind(odd)}", name)
    return TokenPrompt(tuple(map(int, listed)))


def _is_token_id(value: object) -> bool:
    """NumPy's integers count, truth values do not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _entries(values: Any, name: str, wanted: str) -> list[Any]:
    """``values`` as a list, also of an iterator, which can be read only once."""
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | bytearray | Mapping):
        raise InvalidRequest(f"must be {wanted}, not {_kind(values)}", name)
    return list(values)


def _kind(value: object) -> str:
    return type(value).__name__


def _sampling_for_each(sampling: Sampling, count: int) -> list[SamplingParams]:
    if sampling is None or isinstance(sampling, SamplingParams):
        return [sampling or SamplingParams()] * count
    listed = _entries(sampling, "sampling", "SamplingParams, or a list of them")
    for each in listed:
        if not isinstance(each, SamplingParams):
            raise InvalidRequest(f"must hold SamplingParams only, not {_kind(each)}", "sampling")
    if len(listed) != count:
        raise InvalidRequest(
            f"{count} prompts but {len(listed)} SamplingParams; give one, or one for each", "sampling"
        )
    return listed


def _template_source(template: str | Path | None) -> str | None:
    """Raises InvalidConfig for a file that cannot be read."""
    if template is None or isinstance(template, str):
        return template
    if not isinstance(template, Path):
        raise InvalidConfig("chat_template", f"must be a text or a Path, not {_kind(template)}")
    try:
        return template.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidConfig("chat_template", f"cannot read {template}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidConfig("chat_template", f"{template} is not UTF-8 text") from None
