"""A study as one HTML file: no script, nothing from other sites."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from diagnose import __version__
from diagnose.decision.lost import MEANING
from diagnose.rendering.html import template

_SIGN = 6.2
"""about the width of a letter at an axis"""
_GAP = 8.0
"""between two names there"""
_WEEK = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_PARTS = (
    ("useful", "useful", "good"),
    ("lost_work", "lost since the last checkpoint", "bad"),
    ("lost_whole_runs", "lost in whole runs: no checkpoint is known", "bad pale"),
    ("standing_still", "standing still", "warn"),
    ("way_back", "the way back", "warn pale"),
    ("cancelled", "cancelled by somebody", "quiet"),
    ("running", "still running", "quiet pale"),
)


def page(found: dict[str, Any]) -> str:
    """``found``: what ``diagnose.study.tables.study`` gives."""
    whole = found["hours"]["all"] or 1.0
    parts = [
        (words, kind, found["hours"][name], found["hours"][name] / whole)
        for name, words, kind in _PARTS
        if found["hours"][name]
    ]
    return template("study.html").render(
        found=found,
        parts=parts,
        hours=hours,
        span=span,
        meaning=MEANING,
        of_day=bars(found["hours_of_day"], [f"{hour:02}" for hour in range(24)], "failures by hour of day"),
        of_week=bars(found["days_of_week"], _WEEK, "failures by day of week"),
        of_days=bars([row["failures"] for row in found["days"]], [row["day"] for row in found["days"]], "failures by day"),
        most_saved=max((row["gpu_hours"] for row in found["savings"]), default=1.0),
        version=__version__,
    )


def hours(value: float | None) -> str:
    """With three digits where they matter."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 1 else f"{value:.2g}" if value else "0"


def span(seconds: float | None) -> str:
    """A time in words of two letters."""
    if seconds is None:
        return "–"
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def bars(counts: Sequence[float], names: Sequence[str], about: str) -> Markup:
    """A bar for each count; hovering says which."""
    most = max(counts, default=0) or 1
    width, height = 720, 130
    step = (width - 40) / max(1, len(counts))
    every = max(1, math.ceil((_SIGN * max(map(len, names), default=0) + _GAP) / step))
    parts = [Markup('<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(width, height, about)]
    parts.append(Markup('<text class="tick" x="34" y="14" text-anchor="end">{}</text>').format(f"{most:,}"))
    for number, (count, name) in enumerate(zip(counts, names, strict=True)):
        tall = (height - 30) * count / most
        x = 40 + number * step
        parts.append(
            Markup('<rect class="bar" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>').format(
                x, height - 20 - tall, max(1.0, step * 0.8), tall, f"{name}: {count:,}"
            )
        )
        if number % every == 0 and x + _SIGN * len(name) <= width:  # half a date would be another date
            parts.append(Markup('<text class="tick" x="{:.1f}" y="{}">{}</text>').format(x, height - 5, name))
    return Markup("").join([*parts, Markup("</svg>")])
