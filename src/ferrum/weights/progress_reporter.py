"""How a long download tells a person about itself, without knowing what shows it."""

from __future__ import annotations

from typing import Protocol


class ProgressReporter(Protocol):
    """Called from one thread at a time. ``begin`` and ``end`` come in pairs, one task at a time."""

    def begin(self, label: str, total_bytes: int | None) -> None:
        """A task starts; ``total_bytes`` is None while its size is unknown."""

    def advance_to(self, done_bytes: int) -> None:
        """``done_bytes`` of the current task are done; may repeat a number."""

    def end(self) -> None:
        """The current task ended, well or not."""

    def note(self, text: str) -> None:
        """One line worth reading, such as a licence or a digest."""


class SilentReporter:
    """A ProgressReporter that tells nobody."""

    def begin(self, label: str, total_bytes: int | None) -> None:
        pass

    def advance_to(self, done_bytes: int) -> None:
        pass

    def end(self) -> None:
        pass

    def note(self, text: str) -> None:
        pass
