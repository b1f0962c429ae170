"""Puts ``ferrum run`` together: the model, its engine, the conversation, and where the answer goes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TextIO

from ferrum.assembly.loaded_model import LoadedModel
from ferrum.assembly.model_loading import LoadOptions
from ferrum.assembly.start_model import start_model
from ferrum.chat.prompt_encoder import NO_TEMPLATE
from ferrum.cli.answer import Answerer, StreamingEngine
from ferrum.cli.answer_output import AnswerOutput, OutputFormat, make_output
from ferrum.cli.conversation import ChatConversation, Conversation, RawConversation
from ferrum.cli.interrupts import Interrupts
from ferrum.cli.lasting_objects import lasting_objects
from ferrum.cli.late_progress import LateDownloadProgress
from ferrum.cli.model_options import context_line, threads_line
from ferrum.cli.streams import (
    discard_typed_input,
    is_interactive,
    read_piped_text,
    read_piped_text_within,
    say,
)
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.errors import ChatTemplateError, InvalidConfig, InvalidRequest
from ferrum.core.kv_dtype import KvDtype
from ferrum.core.sampling_params import SamplingParams
from ferrum.core.speculation_config import SpeculationConfig
from ferrum.core.token_policy_level import TokenPolicyLevel

INTERRUPTED = 130

# Room that a growing chat leaves for the next answer when nobody said how long it may be.
RESERVE_TOKENS = 256

# A pipe on stdin that has said nothing for so long when --prompt is there belongs to nobody.
SILENT_STDIN_S = 1.0
SILENT_STDIN_NOTE = "ferrum: note: stdin is open but silent and was not read"


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The options of ``ferrum run``. ``template_source`` replaces the model's chat template."""

    model: str
    executor: str
    template_source: str | None
    threads: int | None
    context_length: int | None
    kv_dtype: KvDtype
    token_policy: TokenPolicyLevel
    memory_bytes: int | None
    speculation: SpeculationConfig
    sampling: SamplingParams
    system: str | None
    is_raw: bool
    output_format: OutputFormat

    def __post_init__(self) -> None:
        if self.is_raw and self.system is not None:
            raise InvalidConfig(
                "--system", "has no place without a chat template; leave out --raw or --system"
            )


def run_session(settings: RunSettings, prompt: str | None, stdout: TextIO) -> int:
    """Chats, or answers once; gives the exit status. Raises FerrumError when the model or question fails."""
    has_person = prompt is None and is_interactive()
    started_at = time.monotonic()
    piped = None if has_person or prompt is not None else read_piped_text()
    with lasting_objects():
        running = start_model(
            settings.model, _load_options(settings), LateDownloadProgress(), settings.executor
        )
    try:
        conversation = _conversation(settings, running.model)
        output = make_output(settings.output_format, stdout)
        if has_person:
            say(
                f"{settings.model}: {threads_line(running.model)}; {context_line(running.model.memory)}. "
                "/help lists the commands."
            )
            return chat_at_terminal(conversation, running.engine, settings.sampling, output, settings.model)
        if piped is None:
            waited_s = time.monotonic() - started_at
            piped = read_piped_text_within(max(0.0, SILENT_STDIN_S - waited_s), SILENT_STDIN_NOTE)
        text = join_prompt(piped, prompt)
        return answer_once(text, conversation, running.engine, settings.sampling, output, settings.model)
    finally:
        running.engine.close(0.0)


def join_prompt(piped: str, prompt: str | None) -> str:
    """What was piped, then what was asked about it. Raises InvalidRequest when both are empty."""
    # The last line end belongs to the tool that wrote the pipe, not to the text.
    parts = [part for part in (piped.removesuffix("\n"), prompt) if part]
    if not parts:
        raise InvalidRequest("nothing to answer: the prompt is empty", param="--prompt")
    return "\n\n".join(parts)


def answer_once(
    text: str,
    conversation: Conversation,
    engine: StreamingEngine,
    sampling: SamplingParams,
    output: AnswerOutput,
    model_name: str,
) -> int:
    """One question, one answer; 130 when Ctrl-C ended it."""
    with Interrupts() as interrupts:
        answerer = Answerer(engine, sampling, output, interrupts)
        output.ready(model_name)
        output.question(text)
        answer = asyncio.run(answerer.answer(conversation.ask(text).prompt))
    output.exit()
    return 0 if answer.result is not None else INTERRUPTED


def chat_at_terminal(
    conversation: Conversation,
    engine: StreamingEngine,
    sampling: SamplingParams,
    output: AnswerOutput,
    model_name: str,
) -> int:
    """Chats until the person leaves; the exit status."""
    # Heavy, and of no use to a single question.
    from ferrum.cli.interactive_chat import InteractiveChat
    from ferrum.cli.line_editor import LineEditor

    with Interrupts() as interrupts:
        answerer = Answerer(engine, sampling, output, interrupts)
        chat = InteractiveChat(LineEditor(), conversation, answerer, output, interrupts)
        output.ready(model_name)
        try:
            return asyncio.run(chat.run())
        except BaseException:
            discard_typed_input()
            raise


def _load_options(settings: RunSettings) -> LoadOptions:
    engine = EngineConfig(
        max_model_len=settings.context_length,
        kv_dtype=settings.kv_dtype,
        token_policy=settings.token_policy,
        memory_bytes=settings.memory_bytes,
        speculation=settings.speculation,
        scheduler=SchedulerConfig(max_running_requests=1),
    )
    return LoadOptions(threads=settings.threads, chat_template=settings.template_source, engine=engine)


def _conversation(settings: RunSettings, model: LoadedModel) -> Conversation:
    if settings.is_raw:
        return RawConversation()
    if model.chat_template is None:
        raise ChatTemplateError(NO_TEMPLATE)
    capacity = model.memory.sizes.context_length
    wanted = settings.sampling.max_tokens
    return ChatConversation(
        system=settings.system,
        count_tokens=lambda prompt: len(model.encode_chat(prompt)),
        capacity_tokens=capacity,
        reserve_tokens=wanted if wanted is not None else min(RESERVE_TOKENS, capacity // 4),
    )
