"""TokenCounts: how often each token stands in the window that the penalties look back over."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from ferrum.core.arrays import Int32Array


class TokenCounts:
    """Counts of the last ``window`` tokens (None: of all), kept as flat arrays and changed token by token.

    Mutated by ``add``. A token that has left the window keeps its place with a count of 0.
    """

    def __init__(self, prompt_ids: Sequence[int], window: int | None) -> None:
        self._window = window
        start = 0 if window is None else max(0, len(prompt_ids) - window)
        ids, counts = np.unique(np.array(prompt_ids[start:], np.int32), return_counts=True)
        self._places = {token_id: place for place, token_id in enumerate(ids.tolist())}
        # Tokens that will leave the window, and whether each was generated.
        self._inside = deque[tuple[int, bool]]()
        if window is not None:
            self._inside.extend((token_id, False) for token_id in prompt_ids[start:])
        self._ids, self._in_window = ids, counts.astype(np.int32)
        self._in_output = np.zeros(len(ids), np.int32)

    @property
    def ids(self) -> Int32Array:
        """[num_counted], distinct; a view that ``add`` may change."""
        return self._ids[: len(self._places)]

    @property
    def window_counts(self) -> Int32Array:
        """[num_counted]: in the window."""
        return self._in_window[: len(self._places)]

    @property
    def output_counts(self) -> Int32Array:
        """[num_counted]: in the window, among the generated tokens."""
        return self._in_output[: len(self._places)]

    def add(self, token_id: int) -> None:
        """A generated token comes, and the oldest leaves a window that is full."""
        if self._window == 0:
            return
        place = self._places.setdefault(token_id, len(self._places))
        if place == len(self._ids):
            self._grow()
        self._ids[place] = token_id
        self._in_window[place] += 1
        self._in_output[place] += 1
        if self._window is None:
            return
        self._inside.append((token_id, True))
        if len(self._inside) > self._window:
            oldest, was_generated = self._inside.popleft()
            self._in_window[self._places[oldest]] -= 1
            self._in_output[self._places[oldest]] -= was_generated

    def copy(self) -> TokenCounts:
        """Counts that go on by themselves."""
        twin = object.__new__(TokenCounts)
        twin._window, twin._places, twin._inside = self._window, self._places.copy(), self._inside.copy()
        twin._ids, twin._in_window = self._ids.copy(), self._in_window.copy()
        twin._in_output = self._in_output.copy()
        return twin

    def _grow(self) -> None:
        more = np.zeros(max(64, len(self._ids)), np.int32)
        self._ids = np.concatenate([self._ids, more])
        self._in_window = np.concatenate([self._in_window, more])
        self._in_output = np.concatenate([self._in_output, more])
