"""What is said to the model next: a chat with its history, or plain text without any."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ferrum.core.request import ChatPrompt, Prompt, TextPrompt

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt for the engine. ``num_dropped_turns`` older turns were left out to make room."""

    prompt: Prompt
    num_dropped_turns: int = 0


class Conversation(Protocol):
    """Turns what a person writes into prompts."""

    def ask(self, text: str) -> Question: ...

    def record_answer(self, text: str) -> None: ...

    def take_back(self) -> None:
        """Forgets the last question, which got no answer."""
        ...

    def clear(self) -> None: ...


class RawConversation:
    """Every text stands for itself; there is no history and no template."""

    def ask(self, text: str) -> Question:
        return Question(TextPrompt(text))

    def record_answer(self, text: str) -> None:
        pass

    def take_back(self) -> None:
        pass

    def clear(self) -> None:
        pass


class ChatConversation:
    """A chat with its history. ``ask`` and ``record_answer`` alternate.

    ``count_tokens`` measures a prompt; the oldest turns are dropped for good until it leaves
    ``reserve_tokens`` of ``capacity_tokens`` for the answer. The system message and the newest question stay.
    """

    def __init__(
        self,
        *,
        system: str | None,
        count_tokens: Callable[[ChatPrompt], int],
        capacity_tokens: int,
        reserve_tokens: int,
    ) -> None:
        self._opening: list[Message] = [] if system is None else [{"role": "system", "content": system}]
        self._count_tokens = count_tokens
        self._most_prompt_tokens = capacity_tokens - reserve_tokens
        self._turns: list[list[Message]] = []

    @property
    def num_turns(self) -> int:
        return len(self._turns)

    def ask(self, text: str) -> Question:
        self._turns.append([{"role": "user", "content": text}])
        num_before = len(self._turns)
        prompt = self._prompt()
        while len(self._turns) > 1 and self._count_tokens(prompt) > self._most_prompt_tokens:
            del self._turns[0]
            prompt = self._prompt()
        return Question(prompt, num_before - len(self._turns))

    def record_answer(self, text: str) -> None:
        self._turns[-1].append({"role": "assistant", "content": text})

    def take_back(self) -> None:
        self._turns.pop()

    def clear(self) -> None:
        self._turns.clear()

    def _prompt(self) -> ChatPrompt:
        return ChatPrompt([*self._opening, *(message for turn in self._turns for message in turn)])
