"""Fields of OpenAI's API, of vLLM's and of llama.cpp's that would change the answer and are not implemented.

Each is refused by name unless its value asks for nothing: ignoring it would answer another question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ferrum.core.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class UnsupportedField:
    """``harmless`` lists the values (besides null) that ask for nothing; ``advice`` says what to do."""

    name: str
    harmless: tuple[object, ...] = ()
    advice: str = ""

    def is_harmless(self, value: object) -> bool:
        if value is None or any(type(value) is type(other) and value == other for other in self.harmless):
            return True
        # 0 and 0.0 are the same number on the wire, but true is not 1.
        numbers = [other for other in self.harmless if _is_number(other)]
        return _is_number(value) and value in numbers


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


SHARED = (
    # llama.cpp's.
    UnsupportedField("grammar", ("",), advice="send structured_outputs.grammar"),
    UnsupportedField("json_schema", advice="send structured_outputs.json"),
    UnsupportedField("n_predict", (-1,), advice="send max_tokens"),
    UnsupportedField("n_probs", (0,), advice="send logprobs"),
    UnsupportedField("samplers", advice="the order of samplers is fixed"),
    UnsupportedField("tfs_z", (1,)),
    # vLLM's, its former names too.
    UnsupportedField("use_beam_search", (False,)),
    UnsupportedField("length_penalty", (1,)),
    UnsupportedField("logits_processors", ([],)),
    UnsupportedField("truncate_prompt_tokens", advice="shorten the prompt"),
    UnsupportedField("max_new_tokens", advice="send max_tokens"),
    UnsupportedField("guided_json", advice="send structured_outputs.json"),
    UnsupportedField("guided_regex", advice="send structured_outputs.regex"),
    UnsupportedField("guided_choice", advice="send structured_outputs.choice"),
    UnsupportedField("guided_grammar", advice="send structured_outputs.grammar"),
    UnsupportedField("guided_json_object", (False,), advice="send structured_outputs.json_object"),
    UnsupportedField("guided_whitespace_pattern", advice="blanks are bounded already"),
    UnsupportedField("structural_tag", advice="send structured_outputs.structural_tag"),
)

CHAT_FIELDS = (
    *SHARED,
    UnsupportedField("echo", (False,)),
    UnsupportedField("tools", ([],)),
    UnsupportedField("tool_choice", ("none", "auto")),
    UnsupportedField("functions", ([],)),
    UnsupportedField("function_call", ("none", "auto")),
    UnsupportedField("modalities", (["text"], [])),
    UnsupportedField("audio"),
    UnsupportedField("prediction"),
    UnsupportedField("web_search_options"),
    UnsupportedField("chat_template", advice="start the server with --chat-template"),
    UnsupportedField("documents", ([],)),
    UnsupportedField("prompt", advice="send it as the content of a message, or to /v1/completions"),
)

COMPLETION_FIELDS = (
    *SHARED,
    UnsupportedField("suffix", ("",)),
    UnsupportedField("messages", ([],), advice="send them to /v1/chat/completions"),
    UnsupportedField("tools", ([],), advice="send them to /v1/chat/completions"),
    UnsupportedField("max_completion_tokens", advice="send max_tokens"),
    UnsupportedField("top_logprobs", advice="send logprobs with that number"),
)


def refuse_unsupported(fields: tuple[UnsupportedField, ...], content: Mapping[str, object]) -> None:
    """Raises InvalidRequest for the first field of ``content`` that asks for what this server cannot do."""
    for field in fields:
        if field.name in content and not field.is_harmless(content[field.name]):
            allowed = [repr(value) for value in field.harmless]
            advice = f"leave it out or send {' or '.join(allowed)}" if allowed else "leave it out"
            advice = field.advice or advice
            raise InvalidRequest(f"is not supported by this server; {advice}", param=field.name)
