"""A progress reporter that costs nothing until there is progress: most starts fetch nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ferrum.cli.download_progress import DownloadProgress


class LateDownloadProgress:
    """A ProgressReporter that makes its DownloadProgress when first told something."""

    def __init__(self) -> None:
        self._made: DownloadProgress | None = None

    def begin(self, label: str, total_bytes: int | None) -> None:
        self._progress.begin(label, total_bytes)

    def advance_to(self, done_bytes: int) -> None:
        self._progress.advance_to(done_bytes)

    def end(self) -> None:
        self._progress.end()

    def note(self, text: str) -> None:
        self._progress.note(text)

    @property
    def _progress(self) -> DownloadProgress:
        if self._made is None:
            from ferrum.cli.download_progress import DownloadProgress

            self._made = DownloadProgress()
        return self._made
