"""Progress bars on a terminal, plain lines elsewhere."""

import io

from rich.console import Console

from ferrum.cli.download_progress import DownloadProgress


def report(*, is_terminal: bool) -> str:
    output = io.StringIO()
    progress = DownloadProgress(Console(file=output, force_terminal=is_terminal, width=100))
    for label, total in (("downloading a", 2_000_000), ("downloading b", None)):
        progress.begin(label, total)
        progress.advance_to(1_000_000)
        progress.end()
    progress.note("SHA-256 of [x]: " + "ab" * 60)
    return output.getvalue()


def test_a_terminal_sees_a_bar_with_amounts() -> None:
    shown = report(is_terminal=True)
    assert "downloading a" in shown
    assert "1.0/2.0 MB" in shown
    assert "downloading b" in shown


def test_a_pipe_sees_one_plain_line_a_task() -> None:
    assert report(is_terminal=False).splitlines() == [
        "downloading a",
        "downloading b",
        "SHA-256 of [x]: " + "ab" * 60,
    ]
