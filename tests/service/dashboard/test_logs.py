"""Kept lines as a page shows them: what was dropped, and what many ranks say, is folded; nothing else is."""

from __future__ import annotations

from typing import Any

from diagnose.report import EvidenceLine
from service.dashboard.logs import shown


def row(line: int, text: str, rank: int | None = None, source: str = "a.log") -> dict[str, Any]:
    return {"ord": line, "source": source, "line": line, "text": text, "rule": None, "cut": 0, "rank": rank, "node": None}


def words(rows: list[dict[str, Any]]) -> list[str]:
    return [one["fold"] or one["text"] for one in rows]


def test_what_many_ranks_say_is_one_line() -> None:
    rows = [row(n, f"[Rank {n}] Watchdog timeout after 600{n} ms", rank=n, source=f"rank{n}.log") for n in range(1, 512)]
    found = shown([*rows, row(600, "Terminated")], log="log?attempt=1")
    assert words(found) == [rows[0]["text"], "… 510 more lines say the same, of 511 ranks from 1 to 511", "Terminated"]
    assert found[1]["href"] == "log?attempt=1&every=1&before=0"
    assert len(shown(rows, every=True)) == 511


def test_numbers_of_one_process_are_not_folded() -> None:
    rows = [row(n, f"step {n} loss {n / 7:.3f}", rank=0) for n in range(1, 40)]
    assert words(shown(rows)) == [one["text"] for one in rows]
    apart = [row(1, "a"), row(3, "step 1"), row(4, "step 2"), row(9, "step 3")]
    assert words(shown(apart)) == ["a", "… 1 line dropped", "step 1", "step 2", "… 4 lines dropped", "step 3"]


def test_the_root_line_is_the_one_that_is_shown_of_many() -> None:
    rows = [row(1, f"rank {n} failed", rank=n, source=f"rank{n}.log") for n in range(8)]
    root = EvidenceLine(source="rank5.log", line=1, text="rank 5 failed")
    found = shown(rows, root)
    assert found[0]["text"] == "rank 5 failed"
    assert found[0]["root"]


def test_the_line_that_is_looked_for_is_marked_and_each_has_an_address() -> None:
    found = shown([row(1, "a"), row(4, "b")], log="log?attempt=1", at=("a.log", 4))
    assert words(found) == ["a", "… 2 lines dropped", "b"]
    assert [one.get("at") for one in found] == [False, None, True]
    assert found[2]["there"] == "log?attempt=1&source=a.log&line=4#here"
