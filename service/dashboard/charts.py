"""Values -> SVG: the pictures that need no script. The style sheet gives the colours, by class."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from markupsafe import Markup

from service.dashboard import words

_LEFT = 44
_NARROW = 1000
"""a wider chart keeps a least width on a phone, and is scrolled there"""
_FINE = 120
"""parts of an axis that has no bars, to draw over"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a stacked chart."""

    label: str
    values: Mapping[str, float]
    """class -> value"""
    href: str | None = None
    at: float | None = None
    """when it begins; the page's script writes it in the viewer's time zone"""
    form: str = "day"
    """day or hour: the part of the time that distinguishes the bars"""
    name: str | None = None
    """what it is called on hover and by a screen reader, if its label says too little"""


def stacked(
    bars: Sequence[Bar],
    classes: Sequence[str],
    what: str,
    width: int = 960,
    height: int = 220,
    labelled: Collection[int] | None = None,
    stretch: tuple[float, float] | None = None,
) -> Markup:
    """Stacked bars over time, with an axis. Each bar gives its values on hover and to a screen reader, and is a link if it has
    an address. ``labelled``: the bars that have their label below; by default some twelve. ``stretch``: from when to when; the
    page's script then lets people draw over a part of it.
    """
    left, bottom, top = _LEFT, 30, 8
    inner = height - bottom - top
    most = max((sum(bar.values.values()) for bar in bars), default=0)
    ticks = nice_ticks(most)
    full = ticks[-1] or 1
    step = (width - left) / max(1, len(bars))
    # Nothing inside a picture can be a link for a screen reader; inside a group it can.
    role = "group" if any(bar.href for bar in bars) else "img"
    drawn = _brush(*stretch, len(bars), (left, width), (top, inner)) if stretch else ""
    parts = [
        Markup('<svg class="chart{}" viewBox="0 0 {} {}" role="{}" aria-label="{}"{}>').format(
            " across" if width > _NARROW else "", width, height, role, what, drawn
        )
    ]
    for tick in ticks:
        y = top + inner * (1 - tick / full)
        parts.append(
            Markup(
                '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/><text class="tick" x="{}" y="{:.1f}">{}</text>'
            ).format(left, width, y, y, left - 6, y + 4, words.number(tick))
        )
    labelled = range(0, len(bars), max(1, math.ceil(len(bars) / 12))) if labelled is None else labelled
    for index, bar in enumerate(bars):
        x = left + index * step
        y = top + inner
        said = ", ".join(f"{name} {words.number(value)}" for name, value in bar.values.items() if value)
        column = [Markup("<title>{}: {}</title>").format(bar.name or bar.label, said or "none")]
        for name in classes:
            value = bar.values.get(name, 0)
            if value:
                high = inner * value / full
                y -= high
                column.append(
                    Markup('<rect class="fill-{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
                        name, x + step * 0.12, y, step * 0.76, high
                    )
                )
        # The whole column answers to the pointer, even if nothing failed there.
        column.append(Markup('<rect class="hit" x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>').format(x, top, step, inner))
        group = Markup("<g>{}</g>").format(Markup("").join(column))
        name = f"{bar.name or bar.label}: {said}"
        parts.append(Markup('<a href="{}" aria-label="{}">{}</a>').format(bar.href, name, group) if bar.href else group)
        if index in labelled:
            parts.append(
                Markup('<text class="label" x="{:.1f}" y="{}"{}>{}</text>').format(
                    x + step / 2, height - 8, _when(bar), bar.label
                )
            )
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def _brush(since: float, until: float, parts: int, across: tuple[float, float], down: tuple[float, float]) -> Markup:
    """For the page's script: the picture may be drawn over, in so many parts, from left to right and from top as high."""
    return Markup(
        ' data-brush="" data-since="{:.0f}" data-until="{:.0f}" data-bars="{}" data-left="{}" data-right="{}" data-top="{}"'
        ' data-high="{}"'
    ).format(since, until, parts, *across, *down)


def _when(bar: Bar) -> Markup:
    if bar.at is None:
        return Markup("")
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(bar.at))
    return Markup(' data-at="{}" data-form="{}"').format(stamp, bar.form)


def nice_ticks(most: float, wanted: int = 4) -> list[float]:
    """Round values from 0 to above ``most``: 0 5 10 15."""
    if most < 1e-9:
        return [0, 1]
    rough = most / wanted
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    if most >= 1 and step < 1:
        step = 1
    return [step * index for index in range(math.ceil(most / step) + 1)]


def bar(value: float, most: float, name: str, width: int = 240) -> Markup:
    """One horizontal bar, for tables."""
    length = max(2.0, width * value / most) if most and value else 0
    return Markup(
        '<svg class="bar" viewBox="0 0 {} 10" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="fill-{}" width="{:.1f}" height="10" rx="2"/></svg>'
    ).format(width, name, length)


def shares(values: Mapping[str, float], what: str, width: int = 240) -> Markup:
    """One horizontal bar of parts, by class, that fills its place."""
    whole = sum(values.values())
    parts = [
        Markup('<svg class="bar shares" viewBox="0 0 {} 10" preserveAspectRatio="none" role="img" aria-label="{}">').format(
            width, what
        )
    ]
    at = 0.0
    for name, value in values.items():
        if value > 0:
            length = width * value / whole
            parts.append(
                Markup('<rect class="fill-{}" x="{:.1f}" width="{:.1f}" height="10"/>').format(name, at, max(0.5, length))
            )
            at += length
    return Markup("").join([*parts, Markup("<title>{}</title></svg>").format(what)])


@dataclass(frozen=True, slots=True)
class Reading:
    """A value that was measured with some noise."""

    value: float
    noise: float | None
    bad: bool
    label: str


def trend(readings: Sequence[Reading], what: str, width: int = 160, height: int = 34) -> Markup:
    """A small line with its noise as a band; what is bad has a dot."""
    known = [one for one in readings if math.isfinite(one.value)]
    if len(known) < 2:
        return Markup('<span class="none">–</span>')
    least = min(one.value - (one.noise or 0.0) for one in known)
    most = max(one.value + (one.noise or 0.0) for one in known)
    reach = (most - least) or 1.0
    step = (width - 8) / (len(known) - 1)

    def place(index: int, value: float) -> str:
        return f"{4 + index * step:.1f} {3 + (height - 6) * (1 - (value - least) / reach):.1f}"

    upper = [place(index, one.value + (one.noise or 0.0)) for index, one in enumerate(known)]
    lower = [place(index, one.value - (one.noise or 0.0)) for index, one in enumerate(known)]
    line = "L".join(place(index, one.value) for index, one in enumerate(known))
    bad = [(index, one) for index, one in enumerate(known) if one.bad]
    said = f"{what}: from {known[0].value:.4g} ({known[0].label}) to {known[-1].value:.4g} ({known[-1].label})"
    said += "".join(f"; fell at {one.label}" for _, one in bad)
    dots = Markup("").join(
        Markup('<circle class="fill-infrastructure" cx="{}" cy="{}" r="3"/>').format(*place(index, one.value).split())
        for index, one in bad
    )
    return Markup(
        '<svg class="spark trend" viewBox="0 0 {} {}" role="img" aria-label="{}"><title>{}</title>'
        '<path class="noise" d="M{}Z"/><path d="M{}"/>{}</svg>'
    ).format(width, height, said, said, "L".join([*upper, *reversed(lower)]), line, dots)


@dataclass(frozen=True, slots=True)
class Point:
    """Something that happened at one place of a lane."""

    at: float
    name: str
    """its class"""
    said: str


_PLACES = 150
"""so many marks fit side by side on a lane: on a narrow screen each is as wide as a mark"""
T = TypeVar("T")


def together(marks: Iterable[tuple[float, T]], least: float, most: float) -> list[list[T]]:
    """Group what is at these places from ``least`` to ``most``: marks that would cover the same pixels become one entry."""
    reach = (most - least) or 1.0
    found: dict[int, list[T]] = {}
    for at, mark in marks:
        found.setdefault(int(_PLACES * (at - least) / reach), []).append(mark)
    return list(found.values())


def lane(
    first: float, last: float, points: Sequence[Point], least: float, most: float, name: str, what: str, height: int = 22
) -> Markup:
    """One stretch of steps on an axis from ``least`` to ``most``, with what happened on it. It may be drawn at any width."""
    width = 1000
    reach = (most - least) or 1.0

    def x(value: float) -> float:
        return width * min(1.0, max(0.0, (value - least) / reach))

    begin, end = x(first), x(last)
    parts = [
        Markup('<svg class="lane" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">').format(
            width, height, what
        ),
        Markup('<rect class="rail" y="{}" width="{}" height="2"/>').format(height / 2 - 1, width),
        Markup('<rect class="fill-{}" x="{:.1f}" y="{}" width="{:.1f}" height="6"/>').format(
            name, begin, height / 2 - 3, max(2.0, end - begin)
        ),
    ]
    for point in points:
        # A line keeps its width however far the picture is stretched.
        parts.append(
            Markup('<path class="{}" d="M{:.1f} 3V{}"><title>{}</title></path>').format(
                point.name, x(point.at), height - 3, point.said
            )
        )
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Something that lasted, or happened at one time if it ends when it begins."""

    begin: float
    end: float
    name: str
    """its class"""
    said: str
    href: str | None = None


@dataclass(frozen=True, slots=True)
class Track:
    """One row of a time axis."""

    label: str
    stretches: Sequence[Stretch]


def tracks(rows: Sequence[Track], since: float, until: float, what: str, width: int = 1110, *, brush: bool = False) -> Markup:
    """Rows of stretches and moments on one axis of time. Each says on hover, and to a screen reader, what it is. ``brush``: the
    page's script lets people draw over a part of the time. The names of the rows stand beside the picture: they stay where it
    is scrolled.
    """
    left, high, bottom = 8, 30, 26
    height = high * len(rows) + bottom
    reach = (until - since) or 1.0

    def x(at: float) -> float:
        return left + (width - left - 8) * min(1.0, max(0.0, (at - since) / reach))

    drawn = _brush(since, until, _FINE, (left, width - 8), (0, height - bottom)) if brush else ""
    parts = [
        Markup('<div class="tracks"><div class="names">'),
        *(Markup("<span>{}</span>").format(row.label) for row in rows),
        Markup("</div>"),
        Markup('<svg class="chart" viewBox="0 0 {} {}" role="group" aria-label="{}"{}>').format(width, height, what, drawn),
    ]
    form = "day" if reach > 2 * 86400 else "hour"
    for at in _whole(since, until):
        label = time.strftime("%d %b" if form == "day" else "%H:%M", time.gmtime(at))
        parts.append(
            Markup('<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="0" y2="{1}"/>').format(x(at), height - bottom)
            + Markup('<text class="label" x="{:.1f}" y="{}"{}>{}</text>').format(
                min(width - 30.0, max(30.0, x(at))), height - 8, _when(Bar("", {}, at=at, form=form)), label
            )
        )
    for index, row in enumerate(rows):
        y = index * high
        for one in row.stretches:
            begin, end = x(one.begin), x(one.end)
            mark = (
                Markup(
                    '<rect class="fill-{}" x="{:.1f}" y="{}" width="{:.1f}" height="12" rx="2"><title>{}</title></rect>'
                ).format(one.name, begin, y + high / 2 - 6, max(3.0, end - begin), one.said)
                if one.end > one.begin
                else Markup('<circle class="fill-{}" cx="{:.1f}" cy="{}" r="6"><title>{}</title></circle>').format(
                    one.name, begin, y + high / 2, one.said
                )
            )
            parts.append(Markup('<a href="{}" aria-label="{}">{}</a>').format(one.href, one.said, mark) if one.href else mark)
    parts.append(Markup("</svg></div>"))
    return Markup("").join(parts)


def _whole(since: float, until: float) -> list[float]:
    """Round times between two, six or seven of them: whole days or hours (UTC), so that no label stands twice."""
    unit = 86400.0 if until - since > 2 * 86400 else 3600.0
    step = max(1, math.ceil((until - since) / unit / 7)) * unit
    first = math.ceil(since / step) * step
    return [first + step * index for index in range(int((until - first) // step) + 1)]


def sparkline(values: Sequence[float | None], what: str, width: int = 120, height: int = 26) -> Markup:
    """A small line; gaps where values are missing."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if len(known) < 2:
        return Markup('<span class="none">–</span>')
    least, most = min(known), max(known)
    reach = (most - least) or 1.0
    step = width / max(1, len(values) - 1)
    pieces, pen = [], "M"
    for index, value in enumerate(values):
        if value is None or not math.isfinite(value):
            pen = "M"
            continue
        pieces.append(f"{pen}{index * step:.1f} {2 + (height - 4) * (1 - (value - least) / reach):.1f}")
        pen = "L"
    said = f"{what}: from {known[0]:.4g} to {known[-1]:.4g}, least {least:.4g}, greatest {most:.4g}"
    return Markup(
        '<svg class="spark" viewBox="0 0 {} {}" role="img" aria-label="{}"><title>{}</title><path d="{}"/></svg>'
    ).format(width, height, said, said, "".join(pieces))
