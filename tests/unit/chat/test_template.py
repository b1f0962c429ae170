"""Templates render as Hugging Face renders them, and refuse in one line."""

import json
import logging
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from ferrum.chat import jinja_sandbox
from ferrum.chat.template import ChatTemplate
from ferrum.core.errors import ChatTemplateError, InvalidConfig, InvalidRequest
from template_styles import CHATML, CONVERSATIONS, GEMMA, LLAMA3, MISTRAL, QWEN, SPECIAL_TEXTS, STYLES

GOLDENS = Path(__file__).parents[2] / "golden" / "templates"
HI = [{"role": "user", "content": "hi"}]
USER, ASSISTANT = {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}


def template(source: str, **special: str) -> ChatTemplate:
    return ChatTemplate(source, special or SPECIAL_TEXTS, clock=lambda: datetime(2026, 3, 4, 5, 6))


def render(source: str, messages: Any = HI, **arguments: Any) -> str:
    return template(source).render(messages, **arguments)


@pytest.mark.parametrize("style", STYLES)
def test_styles_render_as_recorded(style: str) -> None:
    recorded = json.loads((GOLDENS / f"{style}.json").read_text())
    assert recorded.keys() == CONVERSATIONS.keys()
    for name, arguments in CONVERSATIONS.items():
        try:
            text = template(STYLES[style]).render(**arguments)
        except ChatTemplateError as error:
            text = f"refused: {error.problem}"
        assert text == recorded[name]


def test_chatml_by_its_definition() -> None:
    messages = [{"role": "system", "content": "s"}, USER, ASSISTANT, USER]
    expected = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    assert render(CHATML, messages) == f"{expected}<|im_start|>assistant\n"
    assert render(CHATML, messages, add_generation_prompt=False) == expected


def test_special_tokens_are_always_defined() -> None:
    source = "{{ bos_token + messages[0].content + eos_token + unk_token + pad_token }}"
    assert ChatTemplate(source, {}).render(HI) == "hi"
    assert ChatTemplate(source, {"bos_token": "<s>"}).render(HI) == "<s>hi"


def test_refusal_carries_the_templates_words_and_the_message() -> None:
    with pytest.raises(ChatTemplateError, match="roles must alternate") as caught:
        render(MISTRAL, [USER, ASSISTANT, USER, USER, ASSISTANT])
    assert "messages[3]" in caught.value.problem
    assert "\n" not in str(caught.value)
    assert caught.value.param == "messages"


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    "messages",
    [
        [USER, USER],
        [ASSISTANT],
        [USER, {"role": "system", "content": "late"}, USER],
        [{"role": "developer", "content": "d"}, USER],
        [USER, {"role": "tool", "content": "t"}],
        [{"role": "tool", "content": "t"}],
        [USER, ASSISTANT],
        [{"role": "user", "content": []}],
        [{"role": "user", "content": ""}],
        [USER, {"role": "assistant", "content": None}],
        [USER, {"role": "assistant"}],
        [{"role": "user", "content": None}],
        [{"role": "user"}],
        [],
        None,
        "hi",
        [None],
        ["hi"],
        [{"content": "x"}],
        [{"role": 3, "content": "x"}],
        [{"role": "im_end", "content": "x"}],
        [{"role": "user", "content": 7}],
        [{"role": "user", "content": [7]}],
        [{"role": "user", "content": [{"type": "text"}]}],
        [USER, {"role": "assistant", "content": "", "tool_calls": "x"}],
        [USER, {"role": "assistant", "content": "", "tool_calls": [{"function": {"arguments": "{"}}]}],
    ],
)
def test_any_conversation_renders_or_is_refused_in_one_line(style: str, messages: Any) -> None:
    refusal = None
    text = ""
    try:
        text = render(STYLES[style], messages)
    except InvalidRequest as error:
        refusal = error
    assert "None" not in text
    assert refusal is None or (refusal.param is not None and "\n" not in str(refusal))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("tool | tojson", '{"b": "> & < \' / é", "a": [1, null, true]}'),
        (
            "tool | tojson(indent=4)",
            '{\n    "b": "> & < \' / é",\n    "a": [\n        1,\n        null,\n        true\n    ]\n}',
        ),
        ("tool | tojson(separators=(',', ':'))", '{"b":"> & < \' / é","a":[1,null,true]}'),
        ("tool | tojson(sort_keys=true)", '{"a": [1, null, true], "b": "> & < \' / é"}'),
        ("'é' | tojson(ensure_ascii=true)", '"\\u00e9"'),
    ],
)
def test_tojson_neither_escapes_nor_sorts(expression: str, expected: str) -> None:
    source = f"{{%- set tool = tools[0] %}}{{{{- {expression} }}}}"
    assert render(source, tools=[{"b": "> & < ' / é", "a": [1, None, True]}]) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}"
            "{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "013",
        ),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "hi!"),
        ("{{ strftime_now('%d %b %Y') }}", "04 Mar 2026"),
        ("{{ messages[::-1][0].content.upper().split('I')[0] }}", "H"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{ messages | rejectattr('role', 'equalto', 'user') | map(attribute='role') | list }}", "[]"),
        (
            "{% set ns = namespace(n=1) %}{% if true %}{% set ns.n = ns.n + 1 %}{% endif %}{{ ns.n }}",
            "2",
        ),
        ("{{ tools is none }} {{ documents is none }} {{ nothing is defined }}", "True True False"),
        ("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f('a') }}", "<a>"),
        ("  {%- if true %}\n  a\n  {% endif %}\nb", "  a\nb"),
        ("{{ '%s=%d' % ('a', 3) }}", "a=3"),
    ],
)
def test_templates_have_what_hugging_face_offers(source: str, expected: str) -> None:
    assert render(source) == expected


def test_template_kwargs_reach_the_template() -> None:
    assert render(QWEN, template_kwargs={"enable_thinking": False}).endswith("<think>\n\n</think>\n\n")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{% for m in messages %}", "line 1"),
        ("a\nb\n{{ messages[ }}\n", "line 3"),
        ("{% nonsense %}", "nonsense"),
        ("", "empty"),
        ("{{ messages[0].content | no_such_filter }}", "no_such_filter"),
        ('{%- for m in messages %}{{ m[\\"role\\"] }}\\n{% endfor %}', "line 1"),
        ("{% for m in messages %}{{ m.content }}\\n{% endfor %}", "JSON"),
    ],
)
def test_broken_source_is_refused_when_it_is_loaded(source: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match=says) as caught:
        template(source)
    assert "\n" not in str(caught.value)
    assert caught.value.field == "chat_template"


def test_escapes_inside_expressions_are_no_reason_to_complain(caplog: pytest.LogCaptureFixture) -> None:
    assert render("{{ 'a\\n' }}{{ messages[0].content }}") == "a\nhi"
    assert not caplog.records


def test_odd_escapes_in_a_template_of_many_lines_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert render("write \\n for a new line\n{{ messages[0].content }}") == "write \\n for a new line\nhi"
    assert "backslash" in caplog.text


def test_line_ends_of_windows_render_alike() -> None:
    assert render(CHATML.replace("\n", "\r\n")) == render(CHATML)


def test_text_parts_are_joined_for_templates_that_take_text() -> None:
    parts = [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]
    for role in ("user", "system", "assistant", "tool"):
        assert "A\nB" in render(CHATML, [{"role": role, "content": parts}])
    assert render(CHATML, [{"role": "user", "content": parts[:1]}]) == render(
        CHATML, [{"role": "user", "content": "A"}]
    )


def test_templates_that_iterate_parts_get_them() -> None:
    parts = [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]
    assert "AB<end_of_turn>" in render(GEMMA, [{"role": "user", "content": parts}])


def test_text_becomes_a_part_for_templates_that_take_parts_only() -> None:
    source = "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"
    assert render(source) == "hi"


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", None])
def test_parts_that_are_not_text_are_refused_where_they_stand(kind: str | None) -> None:
    content = [{"type": "text", "text": "A"}, {"type": kind}]
    with pytest.raises(InvalidRequest) as caught:
        render(CHATML, [USER, {"role": "user", "content": content}])
    assert caught.value.param == "messages[1].content[1].type"


def test_templates_that_refuse_our_probes_still_render() -> None:
    source = (
        "{% if messages[0].role != 'system' %}{{ raise_exception('System must be first') }}{% endif %}"
        "{% if not tools %}{{ raise_exception('no tools') }}{% endif %}{{ messages[0].content }}"
    )
    assert render(source, [{"role": "system", "content": "s"}], tools=[{}]) == "s"


def test_null_content_of_a_tool_call_is_nothing_or_null_as_the_template_asks() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": []}
    assert render("{% for m in messages %}[{{ m.content }}]{% endfor %}", [message]) == "[]"
    assert render("{% for m in messages %}{{ m.content is none }}{% endfor %}", [message]) == "True"


def test_arguments_of_tool_calls_are_objects_in_the_callers_order() -> None:
    call = {"function": {"name": "f", "arguments": '{"z": 1, "a": "é<"}'}}
    source = "{{ messages[0].tool_calls[0].function.arguments | tojson }}"
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    assert render(source, [message]) == '{"z": 1, "a": "é<"}'
    assert call["function"]["arguments"] == '{"z": 1, "a": "é<"}'


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        (CHATML, "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\nOnce upon "),
        (MISTRAL, "<s> [INST] u [/INST] Once upon "),
        (GEMMA, "<s><start_of_turn>user\nu<end_of_turn>\n<start_of_turn>model\nOnce upon"),
        (
            LLAMA3,
            "<s><|start_header_id|>user<|end_header_id|>\n\nu<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nOnce upon",
        ),
    ],
)
def test_final_message_is_left_open_to_go_on(style: str, expected: str) -> None:
    messages = [USER, {"role": "assistant", "content": "Once upon "}]
    text = render(style, messages, add_generation_prompt=False, continue_final_message=True)
    assert text == expected
    assert render(style, messages) != text


def test_continuing_needs_an_assistants_text_and_no_new_turn() -> None:
    with pytest.raises(InvalidRequest) as caught:
        render(CHATML, [USER], add_generation_prompt=False, continue_final_message=True)
    assert caught.value.param == "continue_final_message"
    with pytest.raises(InvalidRequest, match="add_generation_prompt"):
        render(CHATML, [USER, ASSISTANT], add_generation_prompt=True, continue_final_message=True)
    with pytest.raises(ChatTemplateError, match="cannot be continued"):
        render("fixed", [USER, ASSISTANT], add_generation_prompt=False, continue_final_message=True)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({}) }}",
        "{% for a in range(99999999) %}{% endfor %}",
        "{{ 'a' * 999999999 }}",
        "{{ 9 ** 99999999 }}",
        "{{ '%99999999d' % 1 }}",
        "{% set ns = namespace(t='aa') %}{% for i in range(99) %}{% set ns.t = ns.t + ns.t %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ messages[5].content.x }}",
        "{{ 1 / 0 }}",
        "{{ none + 'a' }}",
        "{{ {}['a']['b'] }}",
    ],
)
def test_hostile_or_faulty_templates_fail_in_one_line(source: str) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        render(source)
    assert "\n" not in str(caught.value)


def test_endless_work_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jinja_sandbox, "LONGEST_RENDERING_S", 0.05)
    source = "{% for a in range(99999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"
    with pytest.raises(ChatTemplateError, match="longer than"):
        render(source)
