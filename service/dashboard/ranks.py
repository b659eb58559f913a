"""What is known of each rank -> the heat map of a job: a row for each node, a cell for each rank, the worst first.

A cell says how far its rank is behind the others, or that it stopped first. Nodes whose ranks are all alike are one row, so the
map of 4,096 ranks is as short as that of 16.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from diagnose.diagnosis.silence import LEAST_S, few_below
from diagnose.reading.prefixes import clock, origin
from service.dashboard.words import printable, span
from service.store.pages.ranks import Heard

_ROWS: Final = 24
_FOLDED: Final = 6
"""rows of several nodes that are alike, below the others"""
_CELLS: Final = 16
"""of a node"""
_ALIKE: Final = 2
"""so many nodes that are alike are one row"""
_UNKNOWN: Final = 8
"""ranks in a row if nobody said on which node they ran"""
_WORDS: Final = 100
_FAR: Final = 0.5
"""of the greatest distance behind the others"""
_NUMBERS: Final = re.compile(r"0x[0-9a-fA-F]+|\d+")
_LEVELS: Final = ("first", "far", "behind", "even", "mute")
"""from the worst; mute: it tells of no step"""


@dataclass(frozen=True, slots=True)
class Cell:
    """One rank."""

    rank: int
    level: str
    behind: float
    """steps"""
    said: str
    """all that is known of it, in words"""
    href: str
    suspect: bool
    alike: tuple[str, float | None, str]
    """ranks that have this in common look the same"""


@dataclass(frozen=True, slots=True)
class Row:
    """One node, or several that are alike."""

    node: str | None
    label: str
    cells: Sequence[Cell]
    more: int = 0
    """ranks of it that have no cell"""
    nodes: int = 1
    ranks: int = 0


@dataclass(frozen=True, slots=True)
class HeatMap:
    """All ranks of an attempt."""

    rows: Sequence[Row]
    hidden: int
    """nodes that are not shown"""
    ranks: int
    levels: dict[str, int]
    """how many ranks of each"""
    sentence: str

    @property
    def any_behind(self) -> bool:
        return not {"first", "far", "behind"}.isdisjoint(self.levels)


def heat_map(known: Sequence[Heard], suspects: Collection[int], log: str, *, running: bool) -> HeatMap | None:
    """The map; None if there is one rank, or none. ``log``: the address of the job's kept lines."""
    if len(known) < 2:
        return None
    cells = {one.rank: cell for one, cell in zip(known, _cells(known, set(suspects), log, running), strict=True)}
    whole = [_node(label, node, [cells[rank] for rank in ranks]) for label, node, ranks in _nodes(known)]
    rows = sorted(_folded(whole), key=lambda row: (min(map(_place, row.cells)), row.cells[0].rank))
    apart, alike = [row for row in rows if row.nodes == 1], [row for row in rows if row.nodes > 1]
    levels = Counter(cell.level for cell in cells.values())
    return HeatMap(
        [*apart[:_ROWS], *alike[:_FOLDED]],
        sum(row.nodes for row in [*apart[_ROWS:], *alike[_FOLDED:]]),
        len(cells),
        {level: levels[level] for level in _LEVELS if levels[level]},
        _sentence(levels, len(cells)) + _unheard(cells),
    )


def _cells(known: Sequence[Heard], suspects: set[int], log: str, running: bool) -> Iterable[Cell]:
    steps = {one.rank: one.step for one in known if one.step is not None}
    first, why = _first(known, steps, running)
    front = max(steps.values(), default=0.0)
    furthest = max((front - step for rank, step in steps.items() if rank not in first), default=0.0)
    heard = max((one.last_seen for one in known if one.last_seen is not None), default=0.0)
    for one in known:
        behind = front - one.step if one.step is not None else 0.0
        near = "far" if behind > furthest * _FAR and behind > 10 else "behind" if behind > 1 else "even"
        level = "first" if one.rank in first else "mute" if one.step is None else near
        words = printable(one.words, _WORDS).strip() if one.words else "nothing was kept of it"
        said = [f"rank {one.rank}"]
        if level == "first":
            said.append(why)
        if one.step is not None:
            said.append(f"step {one.step:,.0f}" + (f", {behind:,.0f} behind" if behind else ""))
        if one.last_seen is not None and heard - one.last_seen >= LEAST_S:
            said.append(f"its last line came {span(heard - one.last_seen)} before that of the others")
        if one.rank in suspects:
            said.append("suspected by the diagnosis")
        said.append(f"last words: {words}")
        alike = (level, one.step, _NUMBERS.sub("0", one.words or ""))
        yield Cell(one.rank, level, behind, "; ".join(said), f"{log}&rank={one.rank}", one.rank in suspects, alike)


def _first(known: Sequence[Heard], steps: dict[int, float], running: bool) -> tuple[set[int], str]:
    """The few ranks that stopped before all others, and by what one sees it: steps, when lines came, or the log's own clock.
    While a job runs, ranks tell of a step one after the other.
    """
    came = {one.rank: one.last_seen for one in known if one.last_seen is not None}
    clocks = {
        one.rank: at
        for one in known
        if one.words and (time := origin(one.words.encode()).time) and (at := clock(time)) is not None
    }
    for values, gap, why in (
        (steps, 1.0 if running else 0.0, "stopped first"),
        (came, LEAST_S, "fell silent first"),
        (clocks if not came else {}, LEAST_S, "fell silent first"),
    ):
        found = few_below(values, gap)
        if found is not None:
            return set(found[0]), why
    return set(), ""


def _nodes(known: Sequence[Heard]) -> Iterable[tuple[str, str | None, list[int]]]:
    """(label, name, ranks) of each node. Ranks of unknown nodes stand in rows of eight."""
    found: dict[str, list[int]] = {}
    lost: dict[int, list[int]] = {}
    for one in known:
        (found.setdefault(one.node, []) if one.node else lost.setdefault(one.rank // _UNKNOWN, [])).append(one.rank)
    for name, ranks in found.items():
        yield name, name, ranks
    for ranks in lost.values():
        yield _stretch(ranks), None, ranks


def _node(label: str, name: str | None, cells: Sequence[Cell]) -> Row:
    worst = sorted(cells, key=lambda cell: (_place(cell), cell.rank))[:_CELLS]
    shown = sorted(worst, key=lambda cell: cell.rank)
    return Row(name, label, shown, len(cells) - len(shown), ranks=len(cells))


def _folded(rows: Sequence[Row]) -> Iterable[Row]:
    """Nodes whose cells are all alike, and alike with those of other nodes, as one row."""
    alike: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        kinds = {cell.alike for cell in row.cells}
        plain = len(kinds) == 1 and not row.more and not any(cell.suspect for cell in row.cells)
        key = (len(row.cells), *kinds) if plain and row.cells[0].level in ("even", "mute") else (row.label,)
        alike.setdefault(key, []).append(row)
    for some in alike.values():
        if len(some) < _ALIKE:
            yield from some
            continue
        ranks = sum(row.ranks for row in some)
        names = f"{some[0].label} and {len(some) - 1:,} alike"
        yield Row(some[0].node, names, some[0].cells, ranks - len(some[0].cells), len(some), ranks)


def _place(cell: Cell) -> int:
    return -1 if cell.suspect else _LEVELS.index(cell.level)


def _stretch(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"


def _unheard(ranks: Collection[int]) -> str:
    """The few ranks between the others of which nothing came at all."""
    missing = sorted(set(range(max(ranks) + 1)).difference(ranks)) if max(ranks) < 2 * len(ranks) else []
    if not missing or len(missing) > len(ranks) // 4:
        return ""
    few = ", ".join(map(str, missing[:_UNKNOWN])) + (
        f" and {len(missing) - _UNKNOWN:,} more" if len(missing) > _UNKNOWN else ""
    )
    return f"; nothing came of rank {few}"


def _sentence(levels: Counter[str], whole: int) -> str:
    """What the map shows, in words."""
    late = levels["behind"] + levels["far"]
    parts = [
        f"{levels['first']:,} stopped first" if levels["first"] else "",
        f"{late:,} behind the others" if late else "",
        f"{levels['even']:,} at the last step" if levels["even"] else "",
        f"{levels['mute']:,} without a step of their own" if levels["mute"] else "",
    ]
    return f"{whole:,} ranks: " + ", ".join(part for part in parts if part)
