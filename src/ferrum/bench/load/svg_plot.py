"""Small plots as SVG text: lines over two axes, and bars over time. Knows nothing of what they show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 280
LEFT, RIGHT, TOP, BOTTOM = 70, 16, 12, 44
COLOURS = ("#2563eb", "#dc2626", "#16a34a", "#9333ea")
MAX_POINTS = 1000


@dataclass(frozen=True, slots=True)
class Axis:
    """A linear axis from 0 to a round number; ``label`` names quantity and unit."""

    label: str
    largest: float

    @property
    def step(self) -> float:
        """1, 2 or 5 times a power of ten, so that four to ten steps reach ``largest``."""
        if self.largest <= 0:
            return 1.0
        power = 10.0 ** math.floor(math.log10(self.largest / 4))
        return power * max(factor for factor in (1, 2, 5) if factor * power <= self.largest / 4)

    @property
    def ticks(self) -> list[float]:
        count = max(1, math.ceil(self.largest / self.step - 1e-9))
        return [index * self.step for index in range(count + 1)]

    @property
    def end(self) -> float:
        return self.ticks[-1]


@dataclass(frozen=True, slots=True)
class Series:
    """Points (x, y) in order of x."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Bar:
    """One row of a time chart: waiting from ``start`` to ``middle``, working until ``end``."""

    start: float
    middle: float
    end: float


def line_plot(x: Axis, y: Axis, series: Sequence[Series]) -> str:
    """An SVG element; long series are thinned to what can be seen."""
    parts = [_axes(x, y)]
    for index, one in enumerate(series):
        stride = max(1, -(-len(one.points) // MAX_POINTS))
        points = [*one.points[::stride], *one.points[-1:]]
        path = " ".join(f"{_place_x(x, px):.1f},{_place_y(y, py):.1f}" for px, py in points)
        colour = COLOURS[index % len(COLOURS)]
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{path}"/>')
        if len(series) > 1:
            parts.append(
                f'<text x="{WIDTH - RIGHT - 8}" y="{TOP + 16 + 16 * index}" text-anchor="end" '
                f'fill="{colour}">{escape(one.name)}</text>'
            )
    return _svg(HEIGHT, parts)


def bar_plot(x: Axis, rows_label: str, bars: Sequence[Bar]) -> str:
    """One row for each bar, from top to bottom."""
    y = Axis(rows_label, float(max(1, len(bars))))
    parts = [_axes(x, y)]
    row_height = (HEIGHT - TOP - BOTTOM) / y.end
    for index, bar in enumerate(bars):
        top = TOP + row_height * index
        for start, end, colour in ((bar.start, bar.middle, "#fbbf24"), (bar.middle, bar.end, COLOURS[0])):
            left, right = _place_x(x, start), _place_x(x, end)
            parts.append(
                f'<rect x="{left:.1f}" y="{top:.2f}" width="{max(0.0, right - left):.1f}" '
                f'height="{max(0.3, row_height * 0.8):.2f}" fill="{colour}"/>'
            )
    return _svg(HEIGHT, parts)


def _place_x(axis: Axis, value: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * value / axis.end


def _place_y(axis: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / axis.end


def _axes(x: Axis, y: Axis) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for tick in x.ticks:
        place = _place_x(x, tick)
        parts.append(f'<line x1="{place:.1f}" y1="{TOP}" x2="{place:.1f}" y2="{bottom}" class="grid"/>')
        parts.append(f'<text x="{place:.1f}" y="{bottom + 16}" text-anchor="middle">{tick:g}</text>')
    for tick in y.ticks:
        place = _place_y(y, tick)
        parts.append(f'<line x1="{LEFT}" y1="{place:.1f}" x2="{right}" y2="{place:.1f}" class="grid"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{place + 4:.1f}" text-anchor="end">{tick:g}</text>')
    middle = (TOP + bottom) / 2
    parts.append(
        f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x.label)}</text>'
        f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">'
        f"{escape(y.label)}</text>"
    )
    return "".join(parts)


def _svg(height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">'
        f"{''.join(parts)}</svg>"
    )
