"""How long a step will take: the work that the plan foresees, at rates learned from the steps that ran.

Nothing here touches a token: results do not depend on how prompts are cut into chunks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from operator import attrgetter
from statistics import median
from typing import NamedTuple

from ferrum.core.step import SequencePart
from ferrum.plan.plan_work import PlanWork, Work
from ferrum.plan.work_part import WorkPart
from ferrum.scheduling.work_rates import WorkRates

# Of a step's time, what its prompts took at least, however long its decodes were thought to take.
_LEAST_SHARE = 0.1
# How many steps of decodes alone say how slow they are, and how few do not. The median of 15 is up to a tenth
# off that of a second, and so would be every step beside a prompt, which takes a multiple of it.
_RECENT_STEPS, _FEWEST_STEPS = 40, 5
# Of steps alike in a row, the rates are learned from so many: each corrects 30 % of the error, so of what is
# older 0.5 % would be left.
_TAUGHT_STEPS = 15

_IS_DECODE = attrgetter("is_decode")


class _DecodeStep(NamedTuple):
    parts: Sequence[SequencePart]
    num_rows: int
    seconds: float


class StepPace:
    """Predicts seconds of steps. Mutated by all its methods, on the thread that runs the steps.

    Decodes wait for memory and prompts for arithmetic, so each have rates of their own: steps that only
    decode teach the former, and what other steps take longer than their decodes would teaches the latter.
    Steps that only decode are kept, and learned from when others come or a prediction is asked for: mostly,
    the next step is like the last one, and nobody asks.
    """

    def __init__(self, work: PlanWork) -> None:
        self._work = work
        self._decodes = WorkRates()
        self._prompts = WorkRates()
        self._recent: deque[_DecodeStep] = deque(maxlen=_RECENT_STEPS)  # the last of decodes alone
        self._num_unread = 0  # of the newest of them, those that taught nothing yet
        self._slowness_of: dict[int, float] = {}  # by number of rows, until the next of them

    def predict_decodes(self, parts: Sequence[SequencePart]) -> float:
        """Seconds of a step of decodes alone; 0 for none.

        As slow as the median of the last such steps, where the rates follow the very last ones: those in
        which a prompt is being prepared beside them are slow, and it is then that it is asked.
        """
        if not parts:
            return 0.0
        seconds = self._decode_rates().predict(self._work_of(parts))
        return seconds * self._slowness(_num_rows(parts))

    def predict(self, parts: Sequence[SequencePart]) -> float:
        """Seconds of a step of ``parts``."""
        decodes = [part for part in parts if part.is_decode]
        chunks = [part for part in parts if not part.is_decode]
        base_s = self.predict_decodes(decodes) if decodes else self.base_s
        return base_s + sum(self.predict_chunk(part.start_position, len(part.token_ids)) for part in chunks)

    def predict_rows(self, starts: Sequence[int]) -> float:
        """Seconds of a step that decodes the tokens at these positions, each of another sequence."""
        return self._decode_rates().predict(self._work.of_rows(starts, num_outputs=len(starts)))

    def predict_row(self, start: int) -> float:
        """Seconds that one more token of a sequence at ``start``, and a choice after it, adds to decodes."""
        work = self._work.of((WorkPart(start, 1),), num_outputs=1)
        return self._decode_rates().predict(work._replace(weight_bytes=0, kv_bytes=0))

    @property
    def base_s(self) -> float:
        """Seconds that a step without decodes takes before its first prompt token."""
        return self._prompts.predict(Work(self._work.weight_bytes, 0, 0, 0))

    def predict_chunk(self, start: int, num_tokens: int) -> float:
        """Seconds that a chunk of a prompt from position ``start`` on adds to a step."""
        work = self._work.of((WorkPart(start, num_tokens),), num_outputs=0)
        return self._prompts.predict(work._replace(weight_bytes=0))

    def tokens_within(self, seconds: float, start: int, most: int) -> int:
        """The longest chunk from position ``start`` on that adds no more than ``seconds``, up to ``most``."""
        if self.predict_chunk(start, most) <= seconds:
            return most
        fits, too_long = 0, most
        while too_long - fits > 1:
            middle = (fits + too_long) // 2
            if self.predict_chunk(start, middle) <= seconds:
                fits = middle
            else:
                too_long = middle
        return fits

    def learn(self, parts: Sequence[SequencePart], seconds: float) -> None:
        """A step of ``parts`` took ``seconds``."""
        if seconds <= 0.0:
            return
        if all(map(_IS_DECODE, parts)):
            self._note(_DecodeStep(parts, _num_rows(parts), seconds))
            return
        decodes = [part for part in parts if part.is_decode]
        work = self._work_of([part for part in parts if not part.is_decode])
        if not decodes:
            self._prompts.learn(work, seconds)
        elif self._decode_rates().has_learned:
            rest = max(seconds - self.predict_decodes(decodes), seconds * _LEAST_SHARE)
            self._prompts.learn(work._replace(weight_bytes=0), rest)

    def _note(self, step: _DecodeStep) -> None:
        if self._num_unread and self._recent[-1].num_rows != step.num_rows:
            self._decode_rates()
        self._recent.append(step)
        self._slowness_of.clear()
        self._num_unread = min(self._num_unread + 1, _TAUGHT_STEPS)

    def _decode_rates(self) -> WorkRates:
        for step in islice(self._recent, len(self._recent) - self._num_unread, None):
            self._decodes.learn(self._work_of(step.parts), step.seconds)
        self._num_unread = 0
        return self._decodes

    def _slowness(self, num_rows: int) -> float:
        """Recent decodes' times over what is predicted of them now; of as many rows if enough had them."""
        if num_rows not in self._slowness_of:
            alike = [step for step in self._recent if step.num_rows == num_rows]
            steps = alike if len(alike) >= _FEWEST_STEPS else list(self._recent)
            rates = self._decode_rates()
            ratios = [step.seconds / rates.predict(self._work_of(step.parts)) for step in steps]
            self._slowness_of[num_rows] = median(ratios) if len(ratios) >= _FEWEST_STEPS else 1.0
        return self._slowness_of[num_rows]

    def _work_of(self, parts: Sequence[SequencePart]) -> Work:
        num_outputs = sum([part.num_outputs for part in parts])
        if _num_rows(parts) == len(parts):
            return self._work.of_rows([part.start_position for part in parts], num_outputs)
        runs = [WorkPart(part.start_position, len(part.token_ids)) for part in parts]
        return self._work.of(runs, num_outputs)


def _num_rows(parts: Sequence[SequencePart]) -> int:
    return sum([len(part.token_ids) for part in parts])
