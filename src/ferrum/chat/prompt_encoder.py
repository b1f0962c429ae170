"""A ChatPrompt to token ids: the template's control tokens become ids, those in anybody's words do not."""

from __future__ import annotations

from ferrum.chat.control_guard import ControlGuard
from ferrum.chat.messages import prepare_messages
from ferrum.chat.template import ChatTemplate, texts_in, unused_marker
from ferrum.core.errors import ChatTemplateError, InvalidRequest
from ferrum.core.request import ChatPrompt
from ferrum.tokenization.tokenizer import Tokenizer

NO_TEMPLATE = (
    "this model has no chat template; complete plain text with --raw, "
    "or give a template with --chat-template FILE"
)


def template_for(tokenizer: Tokenizer, source: str | None = None) -> ChatTemplate:
    """The template given, else the model's own. Raises ChatTemplateError where there is none."""
    chosen = source if source is not None else tokenizer.chat_template
    if chosen is None:
        raise ChatTemplateError(NO_TEMPLATE)
    return ChatTemplate(chosen, tokenizer.special_texts)


def encode_chat(template: ChatTemplate | None, tokenizer: Tokenizer, prompt: ChatPrompt) -> list[int]:
    """Token ids of the rendered prompt, with the model's beginning token exactly once.

    Raises ChatTemplateError without a template or when it refuses, InvalidRequest for malformed messages.
    """
    if template is None:
        raise ChatTemplateError(NO_TEMPLATE)
    try:
        return _encode(template, tokenizer, prompt)
    except RecursionError:
        raise InvalidRequest("the messages or tools are nested too deeply", param="messages") from None


def _encode(template: ChatTemplate, tokenizer: Tokenizer, prompt: ChatPrompt) -> list[int]:
    # Prepared first: arguments of tool calls are JSON text, whose escapes would hide a control token's text.
    messages = prepare_messages(prompt.messages, template.content_rules)
    caller = [*texts_in(messages), *texts_in(prompt.tools), *texts_in(prompt.template_kwargs)]
    marker = unused_marker([template.source, *caller])
    guard = ControlGuard(tokenizer.control_tokens, template.literals, marker)
    text = template.render(
        # Roles stay as they are: only known ones pass, and templates write control tokens with them.
        [{**guard.protect(message), "role": message["role"]} for message in messages],
        guard.protect(prompt.tools),
        guard.protect(prompt.template_kwargs),
        add_generation_prompt=not prompt.continue_final_message,
        continue_final_message=prompt.continue_final_message,
    )
    if tokenizer.adds_bos and not text.startswith(tokenizer.special_texts["bos_token"]):
        text = tokenizer.special_texts["bos_token"] + text
    # A template that asks tojson for ASCII has the marker as an escape.
    return tokenizer.encode_marked(text.replace(f"\\u{ord(marker):04x}", marker), marker)
