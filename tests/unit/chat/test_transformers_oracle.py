"""Rendered templates against transformers' own apply_chat_template, run live where it is installed."""

import copy
from typing import Any

import pytest

from ferrum.chat.template import ChatTemplate
from ferrum.core.errors import ChatTemplateError
from template_styles import CONVERSATIONS, SPECIAL_TEXTS, STYLES

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_renders_what_transformers_renders(style: str, name: str) -> None:
    utilities = pytest.importorskip("transformers.utils.chat_template_utils")
    arguments = copy.deepcopy(CONVERSATIONS[name])
    try:
        ours = ChatTemplate(STYLES[style], SPECIAL_TEXTS).render(**arguments)
    except ChatTemplateError:
        with pytest.raises(Exception, match=r"alternate|concatenate|supported"):
            _render(utilities, style, arguments)
        return
    for message in arguments["messages"]:
        # transformers prints None where we write nothing; and wants arguments as objects.
        message["content"] = message.get("content") or ""
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = {"stadt": "Köln", "einheit": "<°C>"}
    assert ours == _render(utilities, style, arguments)


def _render(utilities: Any, style: str, arguments: dict[str, Any]) -> str:
    rendered, _ = utilities.render_jinja_template(
        conversations=[arguments["messages"]],
        tools=arguments.get("tools"),
        chat_template=STYLES[style],
        add_generation_prompt=arguments.get("add_generation_prompt", True),
        **arguments.get("template_kwargs", {}),
        **SPECIAL_TEXTS,
    )
    return str(rendered[0])
