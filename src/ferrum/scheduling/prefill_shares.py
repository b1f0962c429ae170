"""Divides what a step may spend on prompts between the requests whose prompts are not computed yet."""

from __future__ import annotations

from collections.abc import Sequence as Sequences

from ferrum.core.config import SchedulerConfig
from ferrum.core.step import SequencePart
from ferrum.scheduling.sequence import Sequence
from ferrum.scheduling.step_pace import StepPace
from ferrum.scheduling.token_budget import TokenBudget


class _Purse:
    """Tokens and seconds that are left for prompts. Mutated while one plan is written."""

    __slots__ = ("_pace", "budget", "seconds")

    def __init__(self, num_tokens: int, seconds: float, pace: StepPace) -> None:
        self.budget = TokenBudget(num_tokens)
        self.seconds = seconds
        self._pace = pace

    def buy(self, start: int, wanted: int) -> int:
        """As many of ``wanted`` tokens from position ``start`` on as both allow."""
        most = min(wanted, self.budget.remaining)
        if most < 1 or self.seconds <= 0.0:
            return 0
        bought = self._pace.tokens_within(self.seconds, start, most)
        if bought:
            self.seconds -= self._pace.predict_chunk(start, bought)
        return self.budget.take(bought)


class PrefillShares:
    """Half of the step's tokens and time go to the oldest prompt, so that nobody starves whoever else comes;
    the rest to those nearest their end, so that short prompts pass long ones.

    The time is such that, as ``pace`` predicts, a step beside decodes takes no more than
    ``max_decode_stretch`` times what the decodes alone take, and no step takes more than ``max_step_s``,
    unless the decodes alone nearly do: then prompts get as much time as they. A chunk costs more the deeper
    it begins, so chunks shrink as a long prompt goes on, down to ``min_prefill_tokens`` of the oldest.
    """

    def __init__(self, config: SchedulerConfig, pace: StepPace) -> None:
        self._config = config
        self._pace = pace

    def divide(
        self, prefilling: Sequences[Sequence], num_tokens: int, decodes: Sequences[SequencePart]
    ) -> dict[Sequence, int]:
        """Tokens for each of ``prefilling``, which is in the order of tickets and not empty.

        ``num_tokens`` is what the step has room for beside ``decodes``.
        """
        if decodes:
            num_tokens = min(num_tokens, self._config.active_decode_prefill_chunk)
        seconds = self._seconds(decodes)
        oldest = prefilling[0]
        kept = _Purse((num_tokens + 1) // 2, seconds / 2, self._pace)
        chunks = {oldest: self._buy(kept, oldest, 0)}
        spent_tokens = (num_tokens + 1) // 2 - kept.budget.remaining
        rest = _Purse(num_tokens - spent_tokens, seconds / 2 + kept.seconds, self._pace)
        for sequence in sorted(prefilling, key=lambda waiting: waiting.num_remaining_tokens):
            taken = chunks.get(sequence, 0)
            chunks[sequence] = taken + self._buy(rest, sequence, taken)
        least = min(self._config.min_prefill_tokens, self._limit(oldest), num_tokens)
        chunks[oldest] = max(chunks[oldest], min(least, chunks[oldest] + rest.budget.remaining))
        self._bound_scored(chunks)
        return chunks

    def _bound_scored(self, chunks: dict[Sequence, int]) -> None:
        """A step has room for the logits of so many prompt tokens; the oldest prompt always gets some."""
        room = TokenBudget(self._config.max_scored_tokens)
        for sequence, chunk in chunks.items():
            num_scored = sequence.num_scored(chunk)
            granted = room.take(num_scored)
            if granted < num_scored:
                chunks[sequence] = granted

    def _seconds(self, decodes: Sequences[SequencePart]) -> float:
        """What prompts may add to the step."""
        if not decodes:
            return self._config.max_step_s - self._pace.base_s
        alone = self._pace.predict_decodes(decodes)
        return min((self._config.max_decode_stretch - 1) * alone, max(self._config.max_step_s - alone, alone))

    def _buy(self, purse: _Purse, sequence: Sequence, taken: int) -> int:
        return purse.buy(sequence.num_computed_tokens + taken, self._limit(sequence) - taken)

    def _limit(self, sequence: Sequence) -> int:
        return min(sequence.num_remaining_tokens, self._config.prefill_chunk_tokens)
