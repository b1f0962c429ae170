"""Seconds of work, at rates that are learned from work that was done."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ferrum.plan.plan_work import Work

# Of a slow core, per byte or multiply-add of each kind of Work; what is learned first sets the scale.
_FIRST_SECONDS = (2e-10, 2e-11, 2e-10, 4e-11)
# Later work corrects this share of its error, and counts no further than a factor of 1.3: a step that the
# system interrupted says little.
_CORRECTION = 0.3
_LARGEST_ERROR = math.log(1.3)


class WorkRates:
    """Predicts seconds as a sum over the kinds of work, each at its own rate. Mutated by ``learn``.

    What was measured corrects each rate by the part it had in the prediction (the gradient of the sum's
    logarithm), so that rates which had no part keep theirs, and all stay positive.
    """

    def __init__(self) -> None:
        self._seconds: Sequence[float] = _FIRST_SECONDS
        self.has_learned = False

    def predict(self, work: Work) -> float:
        weights, linear, kv, attention = self._seconds
        return (
            work.weight_bytes * weights
            + work.linear_multiply_adds * linear
            + work.kv_bytes * kv
            + work.attention_multiply_adds * attention
        )

    def learn(self, work: Work, seconds: float) -> None:
        """``work`` took ``seconds``, more than 0."""
        error = math.log(seconds / self.predict(work))
        if not self.has_learned:
            self.has_learned = True
            self._scale([error] * len(work))
            return
        terms = [amount * each for amount, each in zip(work, self._seconds, strict=True)]
        total = sum(terms)
        shares = [term / total for term in terms]
        step = _CORRECTION * max(-_LARGEST_ERROR, min(_LARGEST_ERROR, error))
        length = sum(share * share for share in shares)
        self._scale([step * share / length for share in shares])

    def _scale(self, logarithms: Sequence[float]) -> None:
        pairs = zip(self._seconds, logarithms, strict=True)
        self._seconds = tuple(each * math.exp(logarithm) for each, logarithm in pairs)
