"""The chat at the terminal: read an entry, answer it, again."""

from __future__ import annotations

from typing import Protocol

from ferrum.cli.answer import Answerer
from ferrum.cli.answer_output import AnswerOutput
from ferrum.cli.conversation import Conversation
from ferrum.cli.interrupts import Interrupts
from ferrum.cli.line_editor import Command, EndOfInput, Entry, Interrupted, Typed, UnknownCommand
from ferrum.cli.streams import say
from ferrum.core.errors import InvalidRequest

INTERRUPTED = 130
HELP = """/clear  forget the conversation
/bye    leave (Ctrl-D does too)
/help   this text
Ctrl-C stops an answer; \\ at the end of a line, or Alt-Enter, continues the message on the next line."""


class EntrySource(Protocol):
    """Where entries come from."""

    async def read(self) -> Entry: ...


class InteractiveChat:
    """Runs until the person leaves; a refused question is reported and taken back, and the chat goes on."""

    def __init__(
        self,
        entries: EntrySource,
        conversation: Conversation,
        answerer: Answerer,
        output: AnswerOutput,
        interrupts: Interrupts,
    ) -> None:
        self._entries = entries
        self._conversation = conversation
        self._answerer = answerer
        self._output = output
        self._interrupts = interrupts

    async def run(self) -> int:
        """The exit status: 0 after /bye or the end of input, 130 after Ctrl-C twice at the empty prompt."""
        was_interrupted = False
        while True:
            self._interrupts.forget()
            entry = await self._entries.read()
            if isinstance(entry, EndOfInput) or entry is Command.BYE:
                self._output.exit()
                return 0
            if isinstance(entry, Interrupted):
                if was_interrupted and not entry.had_text:
                    self._output.exit()
                    return INTERRUPTED
                if not entry.had_text:
                    say("press Ctrl-C again to leave, or type /bye")
                was_interrupted = not entry.had_text
                continue
            was_interrupted = False
            await self._handle(entry)

    async def _handle(self, entry: Command | UnknownCommand | Typed) -> None:
        match entry:
            case Command.CLEAR:
                self._conversation.clear()
                self._output.history_reset()
                say("the conversation is forgotten")
            case Command.HELP:
                say(HELP)
            case UnknownCommand(name=name):
                say(f"there is no command {name}; /help lists them")
            case Typed(text=text) if text.strip():
                await self._answer(text)

    async def _answer(self, text: str) -> None:
        try:
            question = self._conversation.ask(text)
            if question.num_dropped_turns:
                say(f"note: the context is full; dropped the {_turns(question.num_dropped_turns)}")
            self._output.question(text)
            answer = await self._answerer.answer(question.prompt)
        except InvalidRequest as error:
            self._conversation.take_back()
            say(f"ferrum: error: {error}")
            return
        self._conversation.record_answer(answer.text)


def _turns(count: int) -> str:
    return "oldest turn" if count == 1 else f"{count} oldest turns"
