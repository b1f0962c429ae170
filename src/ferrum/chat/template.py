"""A model's chat template: messages to the text the model was trained to read. Knows nothing of token ids."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
import jinja2.nodes

from ferrum.chat.jinja_sandbox import ChatSandbox, Clock, TemplateRefusal, TemplateTooExpensive
from ferrum.chat.messages import ContentForm, ContentRules, Message, prepare_messages
from ferrum.core.errors import ChatTemplateError, InvalidConfig, InvalidRequest

SPECIAL_TOKEN_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")

# Explaining a refusal renders one message more each time, so it is quadratic.
MOST_EXPLAINED_MESSAGES = 100

_LOGGER = logging.getLogger(__name__)
_PROBE = "PROBETEXT"
# What template code can raise by itself: wrong types, missing keys, arithmetic, recursion.
_TEMPLATE_FAULTS = (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError)


class ChatTemplate:
    """A compiled template. Safe to share between threads: renderings take turns.

    ``special_texts`` gives bos_token, eos_token, unk_token and pad_token; a missing one is defined as "".
    Raises InvalidConfig (with the line) for a source that is not a Jinja template.
    """

    def __init__(
        self,
        source: str,
        special_texts: Mapping[str, str],
        clock: Clock = datetime.now,
        name: str = "chat_template",
    ) -> None:
        self._special_texts = {**dict.fromkeys(SPECIAL_TOKEN_NAMES, ""), **special_texts}
        self._sandbox = ChatSandbox(clock)
        self._lock = threading.Lock()
        self._source = source
        self._template = _compile(self._sandbox, source, name)
        constants = self._sandbox.parse(source).find_all(jinja2.nodes.Const)
        self._literals = frozenset(node.value for node in constants if isinstance(node.value, str))
        tests = self._sandbox.parse(source).find_all(jinja2.nodes.Test)
        asks_for_null = any(test.name == "none" for test in tests)
        self._content_rules = ContentRules(self._probe_content_form(), asks_for_null)

    @property
    def source(self) -> str:
        return self._source

    @property
    def literals(self) -> frozenset[str]:
        """The strings that the template's expressions spell out: what it may look for in contents."""
        return self._literals

    @property
    def content_rules(self) -> ContentRules:
        """What the template takes as a message's content."""
        return self._content_rules

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
    ) -> str:
        """The prompt's text.

        With ``continue_final_message`` the text ends where the last message's content ends. Raises
        InvalidRequest for messages that are malformed and ChatTemplateError with the template's own text
        for those it refuses.
        """
        prepared = prepare_messages(messages, self._content_rules)
        if not continue_final_message:
            return self._render(prepared, tools, template_kwargs, add_generation_prompt)
        if add_generation_prompt:
            raise InvalidRequest(
                "cannot go with add_generation_prompt: the last message is either continued or answered",
                param="continue_final_message",
            )
        return self._render_open(prepared, tools, template_kwargs)

    def _render_open(
        self,
        messages: list[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        template_kwargs: Mapping[str, Any] | None,
    ) -> str:
        """Renders with a tag behind the last content and cuts there, so any closing of the turn is left out.

        The tag ends in a space: where the template took it away it trims contents, and so must the cut.
        """
        last = messages[-1]
        if last["role"] != "assistant" or last.get("tool_calls"):
            raise InvalidRequest(
                "the last message must be an assistant's text to be continued", param="continue_final_message"
            )
        tag = unused_marker([self._source, *texts_in(messages)])
        text = self._render(
            [*messages[:-1], {**last, "content": _append(last["content"], f"{tag} ")}],
            tools,
            template_kwargs,
            add_generation_prompt=False,
        )
        before, found, after = text.rpartition(tag)
        if not found:
            raise ChatTemplateError(
                "the chat template does not write the last message, so it cannot be continued"
            )
        return before if after.startswith(" ") else before.rstrip()

    def _render(
        self,
        messages: list[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        template_kwargs: Mapping[str, Any] | None,
        add_generation_prompt: bool,
    ) -> str:
        variables = {
            **self._special_texts,
            "documents": None,
            **(template_kwargs or {}),
            "tools": tools or None,
            "add_generation_prompt": add_generation_prompt,
        }
        with self._lock:
            try:
                return self._sandbox.render(self._template, {**variables, "messages": messages})
            except _TEMPLATE_FAULTS as error:
                raise self._explain(error, messages, variables) from None
            except RecursionError:
                raise ChatTemplateError("the chat template recurses without end on these messages") from None

    def _explain(
        self, error: Exception, messages: list[Message], variables: Mapping[str, Any]
    ) -> ChatTemplateError:
        """Names the first message with which the template says the same."""
        problem = _problem(error)
        if isinstance(error, TemplateTooExpensive):
            return ChatTemplateError(problem)
        for count in range(1, min(len(messages), MOST_EXPLAINED_MESSAGES) + 1):
            try:
                self._sandbox.render(self._template, {**variables, "messages": messages[:count]})
            except _TEMPLATE_FAULTS as shorter:
                if _problem(shorter) == problem:
                    return ChatTemplateError(f"{problem} (at messages[{count - 1}])")
        return ChatTemplateError(problem)

    def _probe_content_form(self) -> ContentForm:
        """Renders a message of each form and looks whether its text, and only that, comes out."""
        as_text = self._try_probe(_PROBE)
        as_parts = self._try_probe([{"type": "text", "text": _PROBE}])
        takes_parts = _PROBE in as_parts and "'type'" not in as_parts and '"type"' not in as_parts
        if not takes_parts:
            return ContentForm.TEXT
        return ContentForm.EITHER if _PROBE in as_text else ContentForm.PARTS

    def _try_probe(self, content: object) -> str:
        variables = {**self._special_texts, "documents": None, "tools": None, "add_generation_prompt": True}
        messages = [{"role": "user", "content": content}]
        try:
            return self._sandbox.render(self._template, {**variables, "messages": messages})
        except (*_TEMPLATE_FAULTS, RecursionError):
            # A template may refuse a bare user message; that says nothing about the requests to come.
            return ""


def unused_marker(texts: Sequence[str]) -> str:
    """A noncharacter, or else a private-use character, that no text holds, nor its JSON escape."""
    joined = "\n".join(texts).lower()
    for code in (*range(0xFDD0, 0xFDF0), *range(0xE000, 0xF900)):
        if chr(code) not in joined and f"\\u{code:04x}" not in joined:
            return chr(code)
    raise InvalidRequest("the text uses every private character there is")


def texts_in(value: object) -> list[str]:
    """Every string in nested lists and objects, keys included."""
    found: list[str] = []
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, Mapping):
            pending += [*item.keys(), *item.values()]
        elif isinstance(item, Sequence) and not isinstance(item, bytes):
            pending += item
    return found


def _append(content: str | list[dict[str, Any]], text: str) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content + text
    last = content[-1] if content else {"type": "text", "text": ""}
    return [*content[:-1], {**last, "text": last["text"] + text}]


def _compile(sandbox: ChatSandbox, source: str, name: str) -> jinja2.Template:
    _check_escapes(sandbox, source, name)
    try:
        return sandbox.from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise InvalidConfig(name, f"line {error.lineno}: {error.message}") from None
    except (jinja2.TemplateError, RecursionError) as error:
        raise InvalidConfig(name, f"not a usable template: {error}") from None


def _check_escapes(sandbox: ChatSandbox, source: str, name: str) -> None:
    """A template copied out of a JSON file keeps its escapes and would write them into every prompt."""
    if not source.strip():
        raise InvalidConfig(name, "the template is empty")
    try:
        plain = "".join(value for _, kind, value in sandbox.lex(source) if kind == "data")
    except jinja2.TemplateSyntaxError:
        plain = source
    if "\\n" not in plain and '\\"' not in plain:
        return
    if "\n" not in source.strip():
        raise InvalidConfig(
            name,
            "line 1: has JSON escapes such as \\n for its line ends; save the text itself, not its JSON form",
        )
    _LOGGER.warning('%s writes a literal backslash sequence (\\n or \\") outside its expressions', name)


def _problem(error: Exception) -> str:
    if isinstance(error, TemplateRefusal):
        return str(error.message)
    return f"the chat template failed: {error}"
