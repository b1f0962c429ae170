from __future__ import annotations

import hashlib
import json

import pytest

from ferrum.core.request import ChatPrompt, Prompt, TextPrompt, TokenPrompt
from ferrum.evidence.output_scan import scan_output
from ferrum.evidence.redaction import redact_prompt, redact_text, redacted_line

SECRET = "geheim"


def test_of_a_text_its_length_and_hash_remain() -> None:
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    assert redact_text(SECRET) == {"redacted": True, "num_characters": 6, "sha256": f"sha256:{digest}"}
    assert redact_text("\ud800")["num_characters"] == 1
    assert redacted_line(SECRET) == f"[redacted: 6 characters, sha256:{digest}]\n"


@pytest.mark.parametrize(
    "prompt",
    [
        TextPrompt(SECRET),
        TokenPrompt((1, 2)),
        ChatPrompt(
            [
                {"role": "system", "content": SECRET},
                {"role": SECRET, "content": [{"type": "text", "text": SECRET}], SECRET: 1},
                {"role": "assistant", "tool_calls": [{"function": {"name": SECRET, "arguments": SECRET}}]},
            ],
            tools=[{"function": {"name": SECRET}}],
            template_kwargs={SECRET: SECRET},
        ),
    ],
)
def test_no_text_of_a_prompt_is_left(prompt: Prompt) -> None:
    assert SECRET not in json.dumps(redact_prompt(prompt))


def test_a_chat_keeps_its_form() -> None:
    chat = ChatPrompt([{"role": "user", "content": "ab"}, {"role": "odd", "content": "c"}])
    redacted = redact_prompt(chat)
    assert [message["role"] for message in redacted["messages"]] == ["user", "other"]
    assert [message["texts"][0]["num_characters"] for message in redacted["messages"]] == [2, 1]


@pytest.mark.parametrize(
    ("text", "kind", "span"),
    [
        ("fine text <b>bold</b> [1] [note]", None, (None, None)),
        ("a <unk> b", "reserved_token", (2, 7)),
        ("x<|reserved_12|>", "reserved_token", (1, 16)),
        ("[PAD]", "reserved_token", (0, 5)),
        ("ab\ufffd", "replacement_character", (2, 3)),
        ("aï¿½", "mojibake", (1, 4)),
        ("\ufffd then <pad>", "replacement_character", (0, 1)),
    ],
)
def test_the_first_bad_thing_in_an_output_is_found(
    text: str, kind: str | None, span: tuple[int | None, int | None]
) -> None:
    scan = scan_output(text)
    assert (scan.bad_output, scan.kind, (scan.start, scan.end)) == (kind is not None, kind, span)
