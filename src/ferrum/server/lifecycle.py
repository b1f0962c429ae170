"""ServerLifecycle: whether the server takes new work."""

from __future__ import annotations

from ferrum.core.errors import EngineClosed


class ServerLifecycle:
    """Starts open; ``start_draining`` (called once, from the event loop) closes it for good."""

    def __init__(self) -> None:
        self._is_draining = False

    @property
    def is_draining(self) -> bool:
        return self._is_draining

    def start_draining(self) -> None:
        self._is_draining = True

    def require_open(self) -> None:
        """Raises EngineClosed once draining has started."""
        if self._is_draining:
            raise EngineClosed
