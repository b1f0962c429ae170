"""Shows downloads on stderr: bars on a terminal, one line a task elsewhere."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class DownloadProgress:
    """A ProgressReporter for people; holds the bar of the current task. Called from one thread."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._progress: Progress | None = None

    def begin(self, label: str, total_bytes: int | None) -> None:
        if not self._console.is_terminal:
            self.note(label)
            return
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
        self._progress = Progress(
            *columns, TransferSpeedColumn(), TimeRemainingColumn(), console=self._console
        )
        self._progress.add_task(label, total=total_bytes)
        self._progress.start()

    def advance_to(self, done_bytes: int) -> None:
        if self._progress is not None:
            (task,) = self._progress.tasks
            self._progress.update(task.id, completed=done_bytes)

    def end(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def note(self, text: str) -> None:
        # A digest or a path is for copying: no wrapping, no markup.
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
