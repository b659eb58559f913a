"""Numbers over steps -> SVG that needs no script. The style sheet gives the colours, by class."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from markupsafe import Markup

Point = Sequence[float | None]
"""step, mean, least, most; None if there is no number"""
_WIDTH, _HEIGHT = 360, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 8, 8, 22


class _Frame:
    """The places of steps and values in the picture."""

    def __init__(self, xs: Sequence[float], least: float, most: float) -> None:
        self.first, self.last = min(xs), max(xs)
        self.least, self.most = least, most

    def x(self, value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (value - self.first) / ((self.last - self.first) or 1.0)

    def y(self, value: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - (value - self.least) / ((self.most - self.least) or 1.0))


def plot(name: str, points: Sequence[Point], failed_at: float | None = None) -> Markup:
    """The mean as a line in the band from least to most; ``failed_at``: the last step before a failure."""
    # A number without a step is placed by its position in the row.
    known = all(point[0] is not None for point in points)
    steps = [float(point[0] or 0) if known else float(number) for number, point in enumerate(points)]
    values = [value for point in points for value in point[1:] if value is not None and math.isfinite(value)]
    if len(points) < 2 or not values:
        return Markup("")
    frame = _Frame(steps, min(values), max(values))
    parts = [
        Markup('<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{} over steps {:,.0f} to {:,.0f}">').format(
            _WIDTH, _HEIGHT, name, frame.first, frame.last
        ),
        *_axes(frame, "step" if known else "value"),
        *_curves(frame, steps, points),
    ]
    if failed_at is not None and known and frame.first <= failed_at <= frame.last:
        parts.append(
            Markup('<line class="failed" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"><title>{3}</title></line>').format(
                frame.x(failed_at), _TOP, _HEIGHT - _BOTTOM, f"last step before the failure: {failed_at:,.0f}"
            )
        )
    return Markup("").join([*parts, Markup("</svg>")])


def _axes(frame: _Frame, what: str) -> Iterator[Markup]:
    for value in dict.fromkeys((frame.least, (frame.least + frame.most) / 2, frame.most)):
        y = frame.y(value)
        yield Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(_LEFT, _WIDTH - _RIGHT, y, y)
        yield Markup('<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{}</text>').format(
            _LEFT - 5, min(y + 4, _HEIGHT - _BOTTOM + 2), _short(value)
        )
    bottom = _HEIGHT - 6
    yield Markup('<text class="tick" x="{}" y="{}">{} {}</text>').format(_LEFT, bottom, what, f"{frame.first:,.0f}")
    yield Markup('<text class="tick" x="{}" y="{}" text-anchor="end">{}</text>').format(
        _WIDTH - _RIGHT, bottom, f"{frame.last:,.0f}"
    )


def _curves(frame: _Frame, steps: Sequence[float], points: Sequence[Point]) -> Iterator[Markup]:
    rows = [
        (step, *(math.nan if value is None else value for value in point[1:4]))
        for step, point in zip(steps, points, strict=True)
    ]
    for whole, group in groupby(rows, key=lambda row: not any(map(math.isnan, row))):
        stretch = list(group)
        if not whole:
            for step, *_ in stretch:
                yield Markup('<text class="nan" x="{:.1f}" y="{}" text-anchor="middle">×<title>{}</title></text>').format(
                    frame.x(step), _TOP + 8, f"not a number at step {step:,.0f}"
                )
            continue
        above = [_at(frame, step, most) for step, _, _, most in stretch]
        below = [_at(frame, step, least) for step, _, least, _ in reversed(stretch)]
        yield Markup('<polygon class="band" points="{}"/>').format(" ".join(above + below))
        yield Markup('<polyline class="mean" points="{}"/>').format(" ".join(_at(frame, row[0], row[1]) for row in stretch))


def _at(frame: _Frame, step: float, value: float) -> str:
    return f"{frame.x(step):.1f},{frame.y(value):.1f}"


def _short(value: float) -> str:
    """In at most eight characters."""
    text = f"{value:.4g}"
    return text if len(text) < 9 else f"{value:.1e}"
