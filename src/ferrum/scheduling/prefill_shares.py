"""Divides what a step may spend on prompts between the requests whose prompts are not computed yet."""

from __future__ import annotations

from collections.abc import Sequence as Sequences
from typing import NamedTuple

from ferrum.core.config import SchedulerConfig
from ferrum.core.step import SequencePart
from ferrum.scheduling.sequence import Sequence
from ferrum.scheduling.step_pace import StepPace
from ferrum.scheduling.token_budget import TokenBudget

# Of the time that streams of today's depth would leave, what prompts get however deep the streams became:
# the longer a prompt takes, the deeper they are at its end.
_LEAST_SHARE = 0.6


class _Purse:
    """Tokens and seconds that are left for prompts. Mutated while one plan is written."""

    __slots__ = ("_pace", "budget", "seconds")

    def __init__(self, num_tokens: int, seconds: float, pace: StepPace) -> None:
        self.budget = TokenBudget(num_tokens)
        self.seconds = seconds
        self._pace = pace

    def buy(self, start: int, taken: int, wanted: int) -> int:
        """As many of ``wanted`` tokens as both allow, for a chunk from ``start`` on that has ``taken``."""
        most = min(wanted, self.budget.remaining)
        if most < 1 or self.seconds <= 0.0:
            return 0
        # What a chunk reads it reads once, so what it grows by costs less than a chunk of its own.
        paid = self._pace.predict_chunk(start, taken) if taken else 0.0
        bought = self._pace.tokens_within(self.seconds + paid, start, taken + most) - taken
        if bought < 1:
            return 0
        self.seconds -= self._pace.predict_chunk(start, taken + bought) - paid
        return self.budget.take(bought)


class _Beginning(NamedTuple):
    """``seconds`` of a step of ``num_decodes`` alone, when ``oldest`` was first computed beside as many."""

    oldest: Sequence
    num_decodes: int
    seconds: float


class PrefillShares:
    """Half of the step's tokens and time go to the oldest prompt, so that nobody starves whoever else comes;
    the rest to those nearest their end, so that short prompts pass long ones.

    The time is such that, as ``pace`` predicts, a step beside decodes takes no more than
    ``max_decode_stretch`` times what the decodes alone took when the prompt began, and no step takes more
    than ``max_step_s``, unless the decodes alone nearly do: then prompts get as much time as they. A chunk
    costs more the deeper it begins, so chunks shrink as a long prompt goes on, down to ``min_prefill_tokens``
    of the oldest. Mutated by ``divide``.
    """

    def __init__(self, config: SchedulerConfig, pace: StepPace) -> None:
        self._config = config
        self._pace = pace
        self._beginning: _Beginning | None = None

    def divide(
        self, prefilling: Sequences[Sequence], num_tokens: int, decodes: Sequences[SequencePart]
    ) -> dict[Sequence, int]:
        """Tokens for each of ``prefilling``, which is in the order of tickets and not empty.

        ``num_tokens`` is what the step has room for beside ``decodes``.
        """
        if decodes:
            num_tokens = min(num_tokens, self._config.active_decode_prefill_chunk)
        oldest = prefilling[0]
        seconds = self._seconds(oldest, decodes)
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

    def _seconds(self, oldest: Sequence, decodes: Sequences[SequencePart]) -> float:
        """What prompts may add to the step."""
        if not decodes:
            return self._config.max_step_s - self._pace.base_s
        alone = self._pace.predict_decodes(decodes)
        stretch = self._config.max_decode_stretch
        stretched = max(
            stretch * self._usual_seconds(oldest, len(decodes), alone) - alone,
            _LEAST_SHARE * (stretch - 1) * alone,
        )
        return min(stretched, max(self._config.max_step_s - alone, alone))

    def _usual_seconds(self, oldest: Sequence, num_decodes: int, alone: float) -> float:
        """What the gap was before the prompt came: streams that deepen meanwhile do not widen the bound."""
        beginning = self._beginning
        if beginning is None or beginning.oldest is not oldest or beginning.num_decodes != num_decodes:
            beginning = self._beginning = _Beginning(oldest, num_decodes, alone)
        return min(beginning.seconds, alone)

    def _buy(self, purse: _Purse, sequence: Sequence, taken: int) -> int:
        return purse.buy(sequence.num_computed_tokens, taken, self._limit(sequence) - taken)

    def _limit(self, sequence: Sequence) -> int:
        return min(sequence.num_remaining_tokens, self._config.prefill_step_chunk)
