"""Every engine gives the verdicts of the plain one, on anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.knowledge.rules import Rule, RuleSet
from diagnose.matching import shapes
from diagnose.matching.databases import core, libhs
from diagnose.matching.matcher import EngineName, Matcher
from diagnose.matching.scan import Cursor
from diagnose.reading.lines import LONGEST, Blocks, clean
from diagnose.reading.prefixes import body_start
from tests.support.strategies import bodies, cuts, logs, patterns, rule_sets, segments

needs_core = pytest.mark.skipif(core is None and not shutil.which("cc"), reason="no C compiler here")
FAST: list[EngineName] = ["wheel", "core+wheel", "core"] if libhs() else ["wheel", "core+wheel"] if core else ["wheel"]


def scan_all(matcher: Matcher, chunks: list[bytes]) -> dict[str, Any]:
    """Everything there is to know about a log, in a form that can be compared."""
    blocks, cursor = Blocks(), Cursor()
    kept: list[Any] = []
    dropped: Counter[str] = Counter()
    numbers: dict[str, list[Any]] = {}
    totals: Counter[str] = Counter()
    for group in (*map(blocks.feed, chunks), blocks.close()):
        for block in group:
            scan = matcher.scan(block, cursor)
            cursor = scan.cursor
            kept += [(k.line, k.rule, k.cut, text) for k, text in scan.segments()]
            dropped.update({matcher.rules[rule].id: lines for rule, lines in scan.dropped})
            totals.update(lines=scan.lines, blank=scan.blank, kept=scan.lines_kept, bytes=scan.bytes_kept)
            for name, column in scan.numbers.items():
                rows = zip(map(repr, column.steps), map(repr, column.values), column.lines, strict=True)
                numbers.setdefault(name, []).extend(rows)
    return {"kept": kept, "dropped": +dropped, "totals": totals, "numbers": numbers, "cursor": cursor}


@pytest.mark.parametrize("engine", FAST)
@settings(max_examples=60)
@given(rules=rule_sets(), data=st.data())
def test_same_verdicts_as_the_plain_scan(engine: EngineName, rules: RuleSet, data: st.DataObject) -> None:
    log = data.draw(logs)
    # A cache only shows what it does wrong when shapes come again with other numbers.
    log += b"\n" + log.replace(b"79", b"80").replace(b"1", b"22") + b"\n" + log.replace(b"7", b"")
    expected = scan_all(Matcher(rules, "plain"), [log])
    assert scan_all(Matcher(rules, engine), [log]) == expected
    assert scan_all(Matcher(rules, engine), data.draw(cuts(log))) == expected


@settings(max_examples=60)
@given(patterns, bodies)
def test_hyperscan_agrees_with_regex(pattern: str, body: bytes) -> None:
    import regex

    matcher = Matcher(RuleSet((Rule("only", "filters", pattern, kind="debug"),)), "plain")
    assert (matcher.judge(body) == 0) == bool(regex.search(pattern.encode(), body))


def rule(rule_id: str, pattern: str, family: str = "filters", **more: Any) -> Rule:
    extra = {"kind": "debug"} if family == "filters" else {"reason": "runtime_error", "layer": "user"}
    return Rule(rule_id, family, pattern, **(extra | more))  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["plain", *FAST])
@pytest.mark.parametrize(
    ("name", "rules", "lines", "expected"),
    [
        ("failure beats filter", [rule("d", "loss"), rule("f", "error", "failures")], b"loss\nloss error\nerror\n",
         [(2, 0), (3, 0)]),
        ("the earlier failure decides", [rule("f", "b", "failures"), rule("g", "a", "failures")], b"ab\n", [(1, 0)]),
        ("a number that matters", [rule("d", r"^Xid \d+"), rule("f", r"Xid 79\b", "failures")],
         b"Xid 13\nXid 79\nXid 80\nXid 79\nXid 790\n", [(2, 0), (4, 0)]),
        ("a length that matters", [rule("d", r"^code \d{3}$")], b"code 13\ncode 137\ncode 1\ncode 200\n", [(1, -1), (3, -1)]),
        ("a number after a wider one", [rule("d", r"^n=\d+"), rule("f", r"=[1-9]", "failures")], b"n=0\nn=5\nn=0\n", [(2, 0)]),
        ("numbers across a group's border", [rule("d", r"^(?:\d+)(?:\d+)$")], b"1\n12\n3\n123\n", [(1, -1), (3, -1)]),
        ("lookaround is confirmed", [rule("d", r"^ok(?! not)")], b"ok\nok not\nok 1\n", [(2, -1)]),
        ("a back-reference is confirmed", [rule("d", r"^(\w+) \1$")], b"aa aa\naa bb\n", [(2, -1)]),
        ("prefixes are not seen", [rule("d", "^loss")], b"[rank3]: loss\n12: loss\ngpu-017: loss\nx: loss\n", [(4, -1)]),
        ("colours are not seen", [rule("d", "^loss$")], b"\x1b[31mloss\x1b[0m\n\x1b[32m12\x1b[0m\n", [(2, -1)]),
        ("what is left to folds",
         [rule("y", "^log: ", yields=True), rule("l", r"loss \d", left=True), rule("d", r"^log: loss 7 d"),
          rule("f", "error", "failures")],
         b"log: hello\nlog: loss 1\nlog: loss 7 d\nlog: loss 2 error\nloss 3\n", [(2, -1), (4, 0), (5, -1)]),
        ("what yields, and numbers that matter", [rule("y", r"^log \d{3}: ", yields=True), rule("l", r"loss \d", left=True)],
         b"log 123: loss 1\nlog 123: hi\nlog 12: hi\nlog 456: loss 2\n", [(1, -1), (3, -1), (4, -1)]),
        ("segments of a line", [rule("d", "%")], b"1%\r2%\r3%\nx\r4%\n5%\ry\n", [(2, -1), (3, -1)]),
        ("blank lines are no lines", [rule("d", "x")], b"\n   \n\r\n\t\n[rank0]: \n", []),
        ("NULs from a truncated file", [rule("d", "^x")], b"\0\0\0\0x\ny\0\0\n", [(2, -1)]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_kept(engine: EngineName, name: str, rules: list[Rule], lines: bytes, expected: list[tuple[int, int]]) -> None:
    found = scan_all(Matcher(RuleSet.of(rules), engine), [lines])
    assert [(line, number) for line, number, _, _ in found["kept"]] == expected


@pytest.mark.parametrize("engine", FAST)
def test_blocks_larger_than_what_is_worked_on_at_once(engine: EngineName) -> None:
    rules = RuleSet.of([rule("d", r"^d\d+"), rule("f", "f7", "failures"), rule("m", "^m", metrics=(("loss", r"=([\d.]+)"),))])
    lines = [b"d%d\n" % n if n % 3 else b"m=%d\r%d%%\rm=2\n" % (n, n) if n % 2 else b"x f%d\n" % n for n in range(90_000)]
    log = b"".join(lines) + b"a" * 400_000 + b"\nend"
    assert scan_all(Matcher(rules, engine), [log]) == scan_all(Matcher(rules, "plain"), [log])


@pytest.mark.parametrize("engine", ["plain", *FAST])
def test_every_line_is_counted_once(engine: EngineName) -> None:
    log = b"d1\n\nunknown\nd2\rd3\nd4\runknown\n   \nd5"
    found = scan_all(Matcher(RuleSet((rule("d", r"^d\d+"),)), engine), [log])
    assert found["totals"] == Counter(lines=7, blank=2, kept=2, bytes=16)
    assert found["dropped"] == Counter(d=3)


@pytest.mark.parametrize("engine", ["plain", *FAST])
def test_a_long_line_is_kept_and_says_what_was_cut(engine: EngineName) -> None:
    matcher = Matcher(RuleSet((rule("d", "^x"),)), engine)
    (short,) = scan_all(matcher, [b"x" * LONGEST + b"\n" + b"x" * (LONGEST + 1) + b"\n"])["kept"]
    assert short[:3] == (2, 0, 1)
    assert len(short[3]) == LONGEST


@pytest.mark.parametrize("engine", ["plain", *FAST])
def test_a_rule_added_while_streaming_counts_from_the_next_block(engine: EngineName) -> None:
    matcher = Matcher(RuleSet((rule("d", "^a"),)), engine)
    cursor = Cursor()
    kept = []

    def feed(data: bytes) -> None:
        nonlocal cursor
        for block in Blocks().feed(data):
            scan = matcher.scan(block, cursor)
            cursor = scan.cursor
            kept.extend((k.line, text) for k, text in scan.segments())

    feed(b"a1\nb1\n")
    matcher.add([rule("e", "^b")])
    feed(b"a2\nb2\nc2\n")
    matcher.add([rule("f", "^a", "failures")])
    feed(b"a3\nb3\n")
    matcher.absorb().join()
    feed(b"a4\nb4\nc4\n")
    assert kept == [(2, b"b1"), (5, b"c2"), (6, b"a3"), (8, b"a4"), (10, b"c4")]


class SlowFirst(Matcher):
    """Compiles all rules together slowly, the first time: until ``go``."""

    def __init__(self, rules: RuleSet) -> None:
        self.begun, self.go, self.slow = threading.Event(), threading.Event(), False
        super().__init__(rules, "plain")

    def _compile(self, numbered: list[tuple[int, Rule]], gone: Collection[int] | None = None) -> tuple[bytes | None, ...]:
        made = super()._compile(numbered, gone)
        if self.slow and len(numbered) == len(self.rules):
            self.slow = False
            self.begun.set()
            assert self.go.wait(10)
        return made


@pytest.mark.parametrize("absorbed", [True, False], ids=["in the base", "in the delta"])
def test_a_rule_that_is_retired_while_rules_are_absorbed_does_not_come_back(absorbed: bool) -> None:
    matcher = SlowFirst(RuleSet((rule("d", "^a"),)))
    matcher.add([rule("e", "^b")])
    if absorbed:
        matcher.absorb().join()
    matcher.slow = True
    older = matcher.absorb()
    assert matcher.begun.wait(10)
    matcher.retire(["e"])
    for thread in threading.enumerate():
        if thread.name == "absorb-rules" and thread is not older:
            thread.join()
    matcher.go.set()
    older.join()
    assert [k[3] for k in scan_all(matcher, [b"a1\nb1\n"])["kept"]] == [b"b1"]


@pytest.mark.parametrize("engine", FAST)
def test_rules_swapped_under_load_lose_and_double_nothing(engine: EngineName) -> None:
    matcher = Matcher(RuleSet((rule("d", "^never"),)), engine)
    blocks, cursor = Blocks(), Cursor()
    lines = kept = dropped = 0
    for number in range(60):
        if number % 10 == 3:
            matcher.add([rule(f"r{number}", f"^kind{number % 7} ")])
        if number % 20 == 13:
            matcher.absorb()
        for block in blocks.feed(b"".join(b"kind%d line %d\n" % (k % 7, k) for k in range(500))):
            scan = matcher.scan(block, cursor)
            cursor = scan.cursor
            lines += scan.lines
            kept += scan.lines_kept
            dropped += sum(count for _, count in scan.dropped)
    assert (lines, kept + dropped, cursor.line) == (30_000, 30_000, 30_001)
    assert dropped > 0


def test_an_undecided_filter_keeps_and_an_undecided_failure_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diagnose.matching.matcher.CONFIRM_S", 0.001)
    evil = b"a" * 40_000 + b"!"
    for family in ("filters", "failures"):
        matcher = Matcher(RuleSet((rule("evil", r"(?=(a+)+$)(a|aa)+$|(?<=x)y|(a*)*!(?=z)", family),)), FAST[-1])
        kept = scan_all(matcher, [evil + b"\n"])["kept"]
        assert [text for _, _, _, text in kept] == [evil]


@pytest.mark.parametrize("engine", ["core", "plain"])
def test_a_number_that_takes_long_to_find_in_a_long_line_is_given_up(engine: EngineName) -> None:
    """Also where the expression comes from a file: a line of 64 KB once took half a minute."""
    rule = Rule("slow", "filters", "^iter ", kind="metric", metrics=(("loss", r"(\d+)[\d.]*$"),), file="site.yaml")
    began = time.thread_time()
    scan = Matcher(RuleSet.of([rule]), engine).scan(next(iter(Blocks().feed(b"iter " + b"3" * 60_000 + b"x\n"))), Cursor())
    assert time.thread_time() - began < 2.0
    assert (scan.lines, scan.numbers) == (1, {})


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 129])
@needs_core
def test_native_twins_at_the_borders_of_their_words(size: int) -> None:
    for fill in (b"a", b"1", b"\x80", b"1a", b"a\xff9"):
        text = (fill * 130)[:size]
        assert {core.shape(text), *core.shape_ways(text, b""), *core.shape_ways(text, b"7\n\xff" * 9)} == {shapes.shape(text)}


@pytest.mark.skipif(not os.environ.get("CI"), reason="a person's machine may lack the native core or libhs; CI may not")
def test_ci_has_every_engine() -> None:
    assert FAST == ["wheel", "core+wheel", "core"]


@needs_core
@given(st.text("ab #", max_size=30), st.lists(st.text("ab #", min_size=2, max_size=4), max_size=5))
def test_native_search_for_words(text: str, words: list[str]) -> None:
    assert core.any_of(text.encode(), tuple(word.encode() for word in words)) == any(word in text for word in words)


@needs_core
@given(st.binary(max_size=300) | st.text("a\n\r\0\x1b", max_size=300).map(str.encode))
def test_native_ends_of_segments(text: bytes) -> None:
    def bits(signs: bytes) -> bytes:
        number = sum(1 << at for at, byte in enumerate(text) if byte in signs)
        return number.to_bytes((len(text) + 63) // 64 * 8, "little")

    assert set(core.marked(text)) == {(bits(b"\n\r\0"), bits(b"\x1b"))}


@needs_core
@given(segments)
def test_native_twins(text: bytes) -> None:
    assert core.clean(text) == clean(text)
    assert {core.shape(text), *core.shape_ways(text, b""), *core.shape_ways(text, b"7\n\xff" * 9)} == {shapes.shape(text)}
    line = text.replace(b"\n", b"").replace(b"\r", b"").replace(b"\0", b"")
    assert core.body_start(line) == body_start(line)


@needs_core
@pytest.mark.parametrize("digits", [500, 512, 5000])
def test_a_number_of_very_many_digits_is_a_number(digits: int) -> None:
    for text in (b"1.05" + b"9" * digits, b"0." + b"0" * digits + b"7", b"9" * digits):
        assert core.number(text) == (len(text), float(text))


@needs_core
@given(st.floats().map(repr) | st.from_regex(r"[-+]?[0-9]{0,25}\.?[0-9]{0,25}(?:[eE][-+]?[0-9]{0,4})?[a-z ]?", fullmatch=True))
def test_native_numbers_are_pythons(text: str) -> None:
    from diagnose.matching.series import NUMBER

    found = NUMBER.match(text.encode())
    length, value = core.number(text.encode())
    assert length == (found.end() if found else 0)
    if found:
        assert value == float(found[0])


_captured = st.lists(
    st.sampled_from([b"nan", b"-inf", b"Infinity", b"+1", b".5", b"-.5", b"12", b"1e-5", b"e", b"a", b" ", b"."]), max_size=9
)


@needs_core
@given(_captured.map(b"".join), st.data())
def test_native_readings_are_pythons(body: bytes, data: st.DataObject) -> None:
    from diagnose.matching.series import packed, readings

    places = st.tuples(st.integers(0, len(body)), st.integers(0, len(body))).map(sorted)
    captures = [(series, 0.5, *place) for series, place in enumerate(data.draw(st.lists(places, max_size=4)))]
    found = readings(body, captures)
    assert core.readings(body, captures) == (None if found is None else packed(found))


@needs_core
def test_native_readings_count_no_further_than_they_can() -> None:
    from diagnose.matching.series import packed, readings

    for runs in (255, 256, 257):
        body = b"1 " * runs
        captures = [(3, 1.0, len(body) - 2, len(body) - 1)]
        found = readings(body, captures)
        assert core.readings(body, captures) == (None if found is None else packed(found))
    assert found is None


@needs_core
@given(st.sets(st.integers(0, 0xFFFFFFFF), min_size=1, max_size=40))
def test_native_sketches_are_pythons(features: set[int]) -> None:
    from diagnose.compression.workload import _sketch, sketch

    assert _sketch(features) == sketch(features)


def test_the_package_works_without_the_native_core(tmp_path: Path) -> None:
    """Where no compiler was, ``diagnose.matching._core`` does not exist."""
    code = (
        "import sys; sys.modules['diagnose.matching._core'] = None\n"
        "from diagnose.matching.matcher import Matcher, best_engine\n"
        "from diagnose.knowledge.rules import Rule, RuleSet\n"
        "assert best_engine() == 'wheel'\n"
        "assert Matcher(RuleSet((Rule('d', 'filters', 'x', kind='debug'),))).engine == 'wheel'\n"
    )
    import sys

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_core_that_was_built_from_other_sources_is_not_used_and_that_is_said() -> None:
    code = (
        "import sys, types; sys.modules['diagnose.matching._core'] = types.ModuleType('old'); "
        "from diagnose.matching import databases; print(databases.core, databases.libhs())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "None None\n"
    assert "install the checkout again" in done.stderr, "verdicts without it may differ, so it is said"


@pytest.mark.parametrize("engine", ["plain", *FAST])
def test_a_learned_filter_comes_before_what_is_left_to_folds(engine: EngineName) -> None:
    """Else what was learned of a trainer would never drop a line with a loss."""
    matcher = Matcher(RuleSet.of([rule("y", "^log: ", yields=True), rule("l", r"loss \d", left=True)]), engine)
    matcher.add([rule("learned", r"^log: loss \d+ of wheel")])
    found = scan_all(matcher, [b"log: loss 1\nlog: loss 2 of wheel\nlog: hello\n"])
    assert [(line, number) for line, number, _, _ in found["kept"]] == [(1, -1)]
    assert found["dropped"] == {"learned": 1, "y": 1}
