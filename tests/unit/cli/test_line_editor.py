import pytest

from ferrum.cli.line_editor import Command, Entry, Typed, UnknownCommand, read_entry


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("/clear", Command.CLEAR),
        ("  /bye ", Command.BYE),
        ("/help", Command.HELP),
        ("/cler", UnknownCommand("/cler")),
        ("/bye now", Typed("/bye now")),
        ("/etc/passwd", Typed("/etc/passwd")),
        ("/", Typed("/")),
        ("/3", Typed("/3")),
        ("hello\n/bye", Typed("hello\n/bye")),
        ("/bye\nhello", Typed("/bye\nhello")),
        ("", Typed("")),
        (" spaces stay ", Typed(" spaces stay ")),
    ],
)
def test_only_a_single_line_that_is_a_command_is_one(text: str, entry: Entry) -> None:
    assert read_entry(text) == entry
