"""SavedPins: pinned prefixes that outlive the process, in a folder of bounded size."""

from __future__ import annotations

import threading

from ferrum.cache.saved_prefix_folder import SavedPrefixFile, SavedPrefixFolder
from ferrum.core.errors import FerrumError, PrefixNotSaved
from ferrum.engine.prefix_pins import PrefixPins
from ferrum.scheduling.pinned_prefixes import PinnedPrefix


class SavedPins:
    """A prefix is saved under the name it is pinned under. Any thread may call it, and waits its turn."""

    def __init__(self, pins: PrefixPins, folder: SavedPrefixFolder) -> None:
        self._pins = pins
        self._folder = folder
        self._turn = threading.Lock()

    def files(self) -> tuple[SavedPrefixFile, ...]:
        """The least recently used first."""
        with self._turn:
            return self._folder.files()

    def save(self, name: str) -> SavedPrefixFile:
        """Files that were not used for long go when there is no room for one more.

        Raises UnknownPrefix, ResourceExhausted or PrefixNotSaved.
        """
        with self._turn:
            path = self._folder.path_for(name)
            try:
                self._folder.make_room(name, self._pins.file_bytes(name))
            except OSError as error:
                raise PrefixNotSaved(str(path), f"has no room: {error.strerror}") from None
            self._pins.save(name, path)
            status = path.stat()
            return SavedPrefixFile(name, status.st_size, status.st_mtime)

    def restore(self, name: str, cache_salt: str | None = None) -> PinnedPrefix:
        """Pins what was saved under ``name``. Raises what ``PrefixPins.restore`` does, and UnknownPrefix."""
        with self._turn:
            pin = self._pins.restore(name, self._folder.find(name), cache_salt)
            self._folder.note_use(name)
            return pin

    def remove(self, name: str) -> None:
        """Removes the file; what is pinned stays pinned. Raises UnknownPrefix."""
        with self._turn:
            self._folder.remove(name)

    def restore_all(self) -> tuple[list[PinnedPrefix], list[tuple[str, FerrumError]]]:
        """Pins every file that can be used here, the most recently used first; the others with their reasons.

        It does not count as use: which of them are asked for is not known yet.
        """
        pinned, refused = [], []
        with self._turn:
            for file in reversed(self._folder.files()):
                try:
                    pinned.append(self._pins.restore(file.name, self._folder.find(file.name)))
                except FerrumError as error:
                    refused.append((file.name, error))
        return pinned, refused
