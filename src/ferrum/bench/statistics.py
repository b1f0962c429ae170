"""Medians, percentiles and spreads of repeated measurements. Knows no units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` (0 to 1) of ``values`` lie, linear between neighbours.

    The common definition (Hyndman and Fan 1996, type 7). Not for an empty sequence.
    """
    assert values, "percentile of nothing"
    assert 0.0 <= share <= 1.0, share
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def median(values: Sequence[float]) -> float:
    """The middle value. Not for an empty sequence."""
    return percentile(values, 0.5)


@dataclass(frozen=True, slots=True)
class Spread:
    """Repetitions of one measurement: the median is the figure, the rest says how far to trust it."""

    median: float
    lowest: float
    highest: float
    repetitions: int

    @property
    def relative(self) -> float:
        """Distance of highest and lowest, as a share of the median; 0 when the median is 0."""
        return (self.highest - self.lowest) / self.median if self.median else 0.0

    def as_json(self) -> dict[str, float | int]:
        return {
            "median": self.median,
            "lowest": self.lowest,
            "highest": self.highest,
            "spread": self.relative,
            "repetitions": self.repetitions,
        }


def spread_of(values: Sequence[float]) -> Spread:
    """Not for an empty sequence."""
    return Spread(median(values), min(values), max(values), len(values))


@dataclass(frozen=True, slots=True)
class Percentiles:
    """What a distribution of waiting times is judged by, in the unit of its values."""

    p50: float
    p90: float
    p99: float
    largest: float
    count: int

    def as_json(self) -> dict[str, float | int]:
        return {
            "p50": self.p50,
            "p90": self.p90,
            "p99": self.p99,
            "largest": self.largest,
            "count": self.count,
        }


def percentiles_of(values: Sequence[float]) -> Percentiles | None:
    """None for an empty sequence: nothing was measured, which is not the same as zero."""
    if not values:
        return None
    return Percentiles(
        percentile(values, 0.5), percentile(values, 0.9), percentile(values, 0.99), max(values), len(values)
    )
