"""How a conversation appears on stdout: the answer's text and nothing else, or one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol, TextIO

from ferrum.core.request import InferenceResult


class OutputFormat(StrEnum):
    """``--output-format``."""

    TEXT = "text"
    JSONL = "jsonl"


class AnswerOutput(Protocol):
    """Told what happens, in order. An answer is any number of ``delta`` calls and one ``end``."""

    def ready(self, model: str) -> None: ...

    def question(self, text: str) -> None: ...

    def delta(self, text: str) -> None: ...

    def end(self, text: str, result: InferenceResult | None) -> None:
        """The answer is over; ``result`` is None when it was interrupted."""
        ...

    def history_reset(self) -> None: ...

    def exit(self) -> None: ...


class TextOutput:
    """The answer as it comes, ended by a newline. Nothing is wrapped or coloured: a terminal wraps better."""

    def __init__(self, stdout: TextIO) -> None:
        self._stdout = stdout

    def ready(self, model: str) -> None:
        pass

    def question(self, text: str) -> None:
        pass

    def delta(self, text: str) -> None:
        self._stdout.write(text)
        self._stdout.flush()

    def end(self, text: str, result: InferenceResult | None) -> None:
        if not text.endswith("\n"):
            self.delta("\n")

    def history_reset(self) -> None:
        pass

    def exit(self) -> None:
        pass


class JsonlOutput:
    """One object a line, in ASCII: ready, user, assistant_delta, assistant, history_reset, exit."""

    def __init__(self, stdout: TextIO) -> None:
        self._stdout = stdout

    def ready(self, model: str) -> None:
        self._write("ready", {"model": model})

    def question(self, text: str) -> None:
        self._write("user", {"content": text})

    def delta(self, text: str) -> None:
        self._write("assistant_delta", {"content": text})

    def end(self, text: str, result: InferenceResult | None) -> None:
        self._write("assistant", {"content": text, **_summary(result)})

    def history_reset(self) -> None:
        self._write("history_reset", {})

    def exit(self) -> None:
        self._write("exit", {})

    def _write(self, event: str, fields: Mapping[str, object]) -> None:
        self._stdout.write(json.dumps({"event": event, **fields}) + "\n")
        self._stdout.flush()


def _summary(result: InferenceResult | None) -> dict[str, object]:
    if result is None:
        return {"finish_reason": "cancelled"}
    summary: dict[str, object] = {
        "finish_reason": result.finish_reason.value,
        "prompt_tokens": result.usage.prompt_tokens,
        "completion_tokens": result.usage.completion_tokens,
        "seed": result.seed,
    }
    if result.logprobs is not None:
        from ferrum.server.logprob_objects import chat_logprobs

        summary["logprobs"] = chat_logprobs(result.logprobs)
    return summary


def make_output(kind: OutputFormat, stdout: TextIO) -> AnswerOutput:
    """The output for ``--output-format``."""
    return JsonlOutput(stdout) if kind is OutputFormat.JSONL else TextOutput(stdout)
