"""Kept lines -> what a page shows of them: folds where lines were dropped, and where many say the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import Any, Final
from urllib.parse import urlencode

from service.dashboard.words import LONGEST

_A_PAGE: Final = 120_000
"""characters of lines"""
_ALIKE: Final = 5
"""so many lines in a row that say the same become one"""
_NUMBERS: Final = re.compile(r"0x[0-9a-fA-F]+|\d+")


def fitting(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first ones that fit on a page, at least one: lines may be long."""
    sizes = accumulate(min(len(row["text"]), LONGEST) for row in rows)
    return rows[: max(1, sum(size <= _A_PAGE for size in sizes))]


def shown(
    rows: Sequence[dict[str, Any]],
    root: Any = None,
    *,
    folds: bool = True,
    below: str | None = None,
    log: str | None = None,
    every: bool = False,
    at: tuple[str, int] | None = None,
) -> list[dict[str, Any]]:
    """Kept lines as a page shows them. If lines of a source were dropped between two of them, a fold says how many. It links to
    them if the raw log is kept (``below``). Of lines in a row that many ranks said, numbers aside, the first is shown, and a
    fold says how many follow, with a link to all in the job's ``log``; not if ``every`` one is wanted. ``at``: the source and
    line that somebody looks for.
    """
    found: list[dict[str, Any]] = []
    before: dict[str, int] = {}

    def marked(row: dict[str, Any], place: Any) -> bool:
        return place is not None and (row["source"], row["line"]) == place

    where = (root.source, root.line) if root is not None else None
    for _, run in groupby(rows, key=lambda row: _NUMBERS.sub("0", row["text"])):
        alike = list(run)
        told = next((row for row in alike if marked(row, at) or marked(row, where)), alike[0])
        # Numbers of one process may matter; the same words of many processes, or the same line again and again, do not.
        of_many = len({(row["source"], row["rank"]) for row in alike}) >= _ALIKE
        one = len(alike) >= _ALIKE and not every and (of_many or len({row["text"] for row in alike}) == 1)
        for row in [told] if one else alike:
            last = before.get(row["source"])
            if folds and not one and last is not None and row["line"] > last + 1:
                found.append(_dropped(row["source"], last, row["line"], below))
            who = f"rank {row['rank']}" if row["rank"] is not None else row["node"] or ""
            place = urlencode({"source": row["source"], "line": row["line"]})
            there = f"{log}&{place}#here" if log else None
            more = {"who": who, "place": row["source"], "root": marked(row, where), "at": marked(row, at), "there": there}
            found.append({**row, "fold": None, **more})
            before[row["source"]] = row["line"]
        if one:
            before |= {row["source"]: row["line"] for row in alike}
            found.append(_alike(alike, log))
    return found


def _dropped(source: str, last: int, line: int, below: str | None) -> dict[str, Any]:
    gap = line - last - 1
    there = urlencode({"source": source, "from": last + 1, "to": line - 1})
    words = f"… {gap:,} {'line' if gap == 1 else 'lines'} dropped"
    return {"fold": words, "href": f"{below}&{there}" if below is not None else None, "opens": True}


def _alike(rows: Sequence[dict[str, Any]], log: str | None) -> dict[str, Any]:
    ranks = sorted({row["rank"] for row in rows if row["rank"] is not None})
    nodes = {row["node"] for row in rows if row["node"] is not None}
    of = f", of {len(ranks):,} ranks from {ranks[0]} to {ranks[-1]}" if len(ranks) > 1 else ""
    on = f" on {len(nodes):,} nodes" if len(nodes) > 1 else ""
    words = f"… {len(rows) - 1:,} more lines say the same{of}{on}"
    href = f"{log}&{urlencode({'every': 1, 'before': rows[0]['ord'] - 1})}" if log else None
    return {"fold": words, "href": href, "opens": False}
