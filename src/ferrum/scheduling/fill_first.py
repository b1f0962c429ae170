"""FillFirst: whether answers wait for a step, so that prompts fill the batch they will share."""

from __future__ import annotations

from ferrum.scheduling.sequence import Sequence

# Steps in a row for which answers wait at most: prompts that come and go without end must not hold them for
# ever, and streams would fall silent.
_MOST_HELD = 16


class FillFirst:
    """While fewer than ``until_active`` requests run, steps are for prompts alone, if there are any: a batch
    fills sooner, and the gaps of those who answer already grow. 0: never.

    Mutated by the scheduler only.
    """

    def __init__(self, until_active: int) -> None:
        self._until_active = until_active
        self._num_held = 0

    def holds_decodes(self, running: list[Sequence], num_waiting: int) -> bool:
        """Whether the next step should do without decodes; one that would be empty gets them all the same."""
        if len(running) >= self._until_active:
            self._num_held = 0
            return False
        num_decoding = sum(sequence.is_decoding for sequence in running)
        has_prompts = num_waiting > 0 or num_decoding < len(running)
        is_held = num_decoding > 0 and has_prompts and self._num_held < _MOST_HELD
        self._num_held = self._num_held + 1 if is_held else 0
        return is_held
