"""The chat at a terminal, typed at through a pseudo-terminal; only the model is scripted."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from scripted_chat import ANSWER
from terminal import Terminal, terminal

CHAT = str(Path(__file__).with_name("scripted_chat.py"))
PROMPT = ">>>"
CTRL_C = "\x03"
CTRL_D = "\x04"


def events(screen: Terminal, name: str) -> list[dict[str, Any]]:
    """The JSON lines of one kind; the terminal's own echo lies between them."""
    lines = [line[line.index("{") :] for line in screen.visible.splitlines() if '{"event"' in line]
    return [event for event in map(json.loads, lines) if event["event"] == name]


def test_answers_follow_each_other_until_bye() -> None:
    with terminal([CHAT]) as screen:
        for text in ("hello", "again"):
            screen.expect(PROMPT)
            screen.type(f"{text}\r")
            screen.expect("é")
        screen.expect(PROMPT)
        screen.type("/bye\r")
        assert screen.exit_status() == 0


def test_end_of_input_leaves_with_0() -> None:
    with terminal([CHAT]) as screen:
        screen.expect(PROMPT)
        screen.type(CTRL_D)
        assert screen.exit_status() == 0


@pytest.mark.parametrize("columns", [20, 80])
def test_wide_characters_come_out_whole_and_unwrapped(columns: int) -> None:
    with terminal([CHAT, f"--max-tokens={3 * len(ANSWER.encode())}"], columns) as screen:
        screen.expect(PROMPT)
        screen.type("x\r")
        screen.expect("é")
        screen.expect(PROMPT)
        assert ANSWER * 3 in screen.visible


@pytest.mark.parametrize("is_signal", [True, False])
def test_ctrl_c_stops_the_answer_keeps_its_turn_and_leaves_the_terminal_as_it_was(is_signal: bool) -> None:
    with terminal([CHAT, "--latency-s=0.005", "--max-tokens=4000", "--format=jsonl"]) as screen:
        before = screen.modes
        screen.expect(PROMPT)
        screen.type("hello\r")
        screen.expect("assistant_delta")
        if is_signal:
            screen.interrupt()
        else:
            screen.type(CTRL_C)
        screen.expect('"finish_reason": "cancelled"')
        screen.expect(PROMPT)
        screen.type("/bye\r")
        assert screen.exit_status() == 0
        [answer] = events(screen, "assistant")
        assert answer["content"] == "".join(delta["content"] for delta in events(screen, "assistant_delta"))
        assert answer["content"]
        assert screen.modes == before


def test_ctrl_c_between_submitting_and_the_first_token_stops_the_answer() -> None:
    with terminal([CHAT, "--latency-s=0.3", "--max-tokens=4000", "--format=jsonl"]) as screen:
        for wait_s in (0.0, 0.05, 0.2):
            screen.expect(PROMPT)
            screen.type("hello\r")
            screen.expect('"event": "user"')
            time.sleep(wait_s)
            screen.interrupt()
            screen.expect('"finish_reason": "cancelled"', within_s=2)
        screen.expect(PROMPT)
        screen.type("/bye\r")
        assert screen.exit_status() == 0


@pytest.mark.parametrize("is_signal", [True, False])
def test_ctrl_c_at_the_empty_prompt_hints_and_the_second_leaves_with_130(is_signal: bool) -> None:
    with terminal([CHAT]) as screen:
        before = screen.modes
        for expected in ("press Ctrl-C again", None):
            screen.expect(PROMPT)
            if is_signal:
                screen.interrupt()
            else:
                screen.type(CTRL_C)
            if expected:
                screen.expect(expected)
        assert screen.exit_status() == 130
        assert screen.modes == before


def test_ctrl_c_throws_a_half_written_message_away_and_does_not_count() -> None:
    with terminal([CHAT, "--format=jsonl"]) as screen:
        for _ in range(3):
            screen.expect(PROMPT)
            screen.type("half a mess")
            screen.expect("mess")
            screen.type(CTRL_C)
        screen.expect(PROMPT)
        screen.type("whole\r")
        screen.expect('"event": "assistant"')
        screen.expect(PROMPT)
        screen.type("/bye\r")
        assert screen.exit_status() == 0
        assert [event["content"] for event in events(screen, "user")] == ["whole"]


def test_paste_is_one_literal_message_and_never_a_command() -> None:
    pasted = "\n".join(["/bye", '"""', "/api/chat", "", *(f"line {index}" for index in range(200))])
    with terminal([CHAT, "--format=jsonl"], columns=200) as screen:
        screen.expect(PROMPT)
        screen.type(f"\x1b[200~{pasted}\x1b[201~")
        screen.expect("line 199")
        screen.type("\r")
        screen.expect('"event": "assistant"')
        screen.expect(PROMPT)
        screen.type("\x1b[200~/bye\x1b[201~")
        screen.expect("/bye")
        screen.type("\r")
        screen.expect('"event": "assistant"')
        screen.expect(PROMPT)
        screen.type("/bye\r")
        assert screen.exit_status() == 0
        [first, second] = [event["content"] for event in events(screen, "user")]
        assert first == pasted
        assert second == "/bye"


def test_backslash_continues_the_message_on_the_next_line() -> None:
    with terminal([CHAT, "--format=jsonl"]) as screen:
        screen.expect(PROMPT)
        for line in ("1\\\r", "2\\\r", "\\\r", "3\r"):
            screen.type(line)
            time.sleep(0.05)
        screen.expect('"event": "assistant"')
        screen.expect(PROMPT)
        screen.type("/bye\r")
        assert screen.exit_status() == 0
        assert [event["content"] for event in events(screen, "user")] == ["1\n2\n\n3"]


def test_commands_clear_help_and_unknown() -> None:
    with terminal([CHAT, "--format=jsonl"]) as screen:
        for typed, expected in (
            ("/help\r", "forget the conversation"),
            ("/clear\r", '"event": "history_reset"'),
            ("/clera\r", "no command /clera"),
            ("/usr/bin is what?\r", '"content": "/usr/bin is what?"'),
        ):
            screen.expect(PROMPT)
            screen.type(typed)
            screen.expect(expected)
        screen.expect(PROMPT)
        screen.type("/bye\r")
        assert screen.exit_status() == 0


def test_too_long_message_is_refused_and_the_chat_goes_on() -> None:
    with terminal([CHAT, "--format=jsonl"], columns=200) as screen:
        screen.expect(PROMPT)
        screen.type(f"\x1b[200~{'x' * 9000}\x1b[201~")
        screen.type("\r")
        screen.expect("ferrum: error: ")
        screen.expect(PROMPT)
        screen.type("short\r")
        screen.expect('"event": "assistant"')
        screen.expect(PROMPT)
        screen.type("/bye\r")
        assert screen.exit_status() == 0
