"""The native core forgets shapes when there are too many, and stays right."""

from __future__ import annotations

import random

import pytest

from diagnose.knowledge.rules import Rule, RuleSet
from diagnose.matching.databases import core
from diagnose.matching.matcher import Matcher, best_engine
from diagnose.matching.scan import Cursor
from diagnose.reading.lines import Block


@pytest.mark.skipif(core is None, reason="no native core here")
def test_verdicts_hold_while_shapes_are_forgotten() -> None:
    rules = RuleSet.of(
        [
            Rule("metric", "filters", "^loss ", kind="metric", metrics=(("loss", r"loss (\S+)"),)),
            Rule("odd", "filters", "^[a-z]+ odd", kind="debug"),
        ]
    )
    matcher = Matcher(rules, best_engine())
    made = random.Random(3)
    cursor, most, values, dropped, kept = Cursor(), 0, 0, 0, 0
    for _ in range(40):
        words = ["".join(made.choices("abcdefghijklmnopqrstuvwxyz", k=12)) for _ in range(10_000)]
        lines = [f"{word} {'odd' if number % 2 else 'even'}" for number, word in enumerate(words)] + ["loss 1.5"] * 100
        scan = matcher.scan(Block("\n".join([*lines, ""]).encode()), cursor)
        cursor = scan.cursor
        values += len(scan.numbers["loss"].values)
        dropped += sum(count for _, count in scan.dropped)
        kept += scan.lines_kept
        most = max(most, matcher._engine._scanner.shapes())  # type: ignore[attr-defined]
    assert (values, dropped, kept) == (4_000, 40 * 5_100, 40 * 5_000)
    assert 200_000 < most < 220_000


@pytest.mark.skipif(core is None, reason="no native core here")
def test_an_index_of_words_takes_only_words_and_keeps_them() -> None:
    for wrong in ((b"ab", b"a"), ("ab",), (b"x" * 70_000,)):
        with pytest.raises(ValueError, match="two bytes"):
            core.Words(wrong)
    with pytest.raises(ValueError, match="too many"):
        core.Words((b"ab",) * 9000)
    index = core.Words(tuple(b"%04d" % number for number in range(5000)))
    with pytest.raises(TypeError, match="already"):
        index.__init__((b"ab",))  # type: ignore[misc]
    assert sorted(index.found(b"0017 4999 5000 0017")) == [17, 4999]
    assert core.Words.__new__(core.Words).found(b"abc") == []
