"""Spans -> a picture: each place and each metric of a node is a row, and time runs to the right. One SVG file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _LEFT, _ROW, _GAP = 1100, 130, 14, 10
_COLOURS = {"load": "#8a63d2", "trial": "#2f7ed8", "metric": "#3fa66b", "failed": "#d64545"}


@dataclass(frozen=True, slots=True)
class Bar:
    """A piece of work in time."""

    key: str
    node: str
    begin_s: float
    end_s: float
    well: bool = True

    @property
    def kind(self) -> str:
        return self.key.partition("/")[0] if self.well else "failed"


def picture(title: str, bars: Sequence[Bar], expected_s: float | None = None) -> str:
    """``expected_s``: a line at the end that was expected."""
    begin = min((bar.begin_s for bar in bars), default=0.0)
    whole = max([expected_s or 0.0, *(bar.end_s - begin for bar in bars)], default=0.0) or 1.0
    scale = (_WIDTH - _LEFT - 20) / whole
    parts, y = [], 46
    for name, lane in _lanes(bars):
        parts.append(f'<text x="8" y="{y + _ROW - 3}">{escape(name)}</text>' if name else "")
        for bar in lane:
            x, width = _LEFT + (bar.begin_s - begin) * scale, max((bar.end_s - bar.begin_s) * scale, 1)
            about = f"{bar.key}: {bar.end_s - bar.begin_s:.1f} s"
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_ROW - 2}" fill="{_COLOURS[bar.kind]}" '
                f'stroke="#fff" stroke-width="0.5"><title>{escape(about)}</title></rect>'
            )
        y += _ROW
    if expected_s is not None:
        x = _LEFT + expected_s * scale
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="40" y2="{y + _GAP}" stroke="#333" stroke-dasharray="4 3"/>')
        parts.append(f'<text x="{min(x, _WIDTH - 70):.1f}" y="38" text-anchor="middle">expected</text>')
    legend = "".join(
        f'<rect x="{_LEFT + 90 * number}" y="{y + 18}" width="12" height="12" fill="{colour}"/>'
        f'<text x="{_LEFT + 90 * number + 17}" y="{y + 28}">{kind}</text>'
        for number, (kind, colour) in enumerate(_COLOURS.items())
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + 44}" font-family="sans-serif" font-size="11">'
        f'<rect width="100%" height="100%" fill="#fff"/><text x="8" y="20" font-size="14">{escape(title)}</text>'
        f"{''.join(parts)}{legend}</svg>\n"
    )


def _lanes(bars: Iterable[Bar]) -> list[tuple[str, list[Bar]]]:
    """(name of the node, in its first row; bars that do not overlap), trials before metrics."""
    found: list[tuple[str, list[Bar]]] = []
    by_row: dict[tuple[str, bool], list[list[Bar]]] = {}
    for bar in sorted(bars, key=lambda bar: bar.begin_s):
        rows = by_row.setdefault((bar.node, bar.key.startswith("metric/")), [])
        row = next((row for row in rows if row[-1].end_s <= bar.begin_s + 1e-9), None)
        if row is None:
            rows.append([bar])
        else:
            row.append(bar)
    seen: set[str] = set()
    for (node, _), rows in sorted(by_row.items()):
        for row in rows:
            found.append(("" if node in seen else node[:18], row))
            seen.add(node)
    return found
