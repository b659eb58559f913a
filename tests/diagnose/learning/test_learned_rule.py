"""Learned rules: mined from lines, refused for good reasons, counted in shadow, and never let in by a back door."""

from __future__ import annotations

import json
import re
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from diagnose.errors import RuleError
from diagnose.knowledge.rules import Example, Rule, RuleSet, parse
from diagnose.learning.learned_rule import (
    CLEAN_JOBS,
    ROT_S,
    WIDE,
    Counts,
    Learned,
    State,
    exported,
    followed,
    judged,
    move,
    moved,
    settle,
)
from diagnose.learning.lesson import judge, learn, propose, shadow, working_rules
from diagnose.learning.miner import Miner, mine
from diagnose.learning.sqlite import SqliteBook
from tests.conftest import Run
from tests.support.logs import job_of

LINES = [f"custom scheduler chose lane {n} for bucket b{n % 7} at /data/run{n}/x.bin" for n in range(40)]
BESIDE = RuleSet.of(
    [
        Rule(
            "oops", "failures", "RuntimeError: ", reason="runtime_error", layer="user", matches=(Example("RuntimeError: no"),)
        ),
        Rule("fine", "filters", "^all is fine with \\d+$", kind="debug", matches=(Example("all is fine with 3"),)),
    ]
)


def proposal(pattern: str, *lines: str, name: str = "p") -> Rule:
    shown = tuple(Example(line) for line in (lines or ("lane keeper chose lane 3",))[:1])
    return Rule(name, "filters", pattern, kind="debug", framework="learned", matches=shown, misses=(Example("something else"),))


def refusal(pattern: str, *lines: str) -> str | None:
    found = judged([proposal(pattern, *lines)], {"p": lines}, ["ERROR: lane keeper is gone"], BESIDE)
    return found["p"].name if found else None


LANES = tuple(f"lane keeper chose lane {n}" for n in range(5))


def test_lines_of_one_template_become_one_anchored_rule() -> None:
    ((rule, template),) = mine(LINES)
    assert (template.count, len(template.held)) == (20, 8)
    assert rule.pattern.startswith("^custom +scheduler +chose +lane +")
    assert rule.pattern.endswith("$")
    assert judged([rule], {rule.id: LINES}, (), BESIDE) == {}


def test_words_that_differ_become_variable() -> None:
    ((rule, _),) = mine([f"moved the {what} shard to the fast tier" for what in ("red", "green", "blue")])
    assert r"[\w.-]+" in rule.pattern
    assert "moved" in rule.pattern


def test_what_came_once_or_twice_is_not_proposed() -> None:
    assert mine(["one odd line", "another thing"]) == []


def one_rule(*lines: str) -> str:
    ((rule, template),) = mine(lines)
    everything = [*template.samples, *template.held]
    assert judged([rule], {rule.id: everything}, (), BESIDE) == {}
    return rule.pattern


def test_lists_of_any_length_are_one_template() -> None:
    pattern = one_rule(*(f"ring order: {' '.join(map(str, range(n)))} end" for n in range(4, 12)))
    assert re.match(pattern, "ring order: " + "7 " * 90 + "end")
    assert not re.match(pattern, "ring order: 7 7 failed 7 end")


def test_lists_of_names_keep_what_the_names_begin_with() -> None:
    names = [[f"'model.unet.block{n}.{part}'" for n in range(size)] for size, part in ((5, "w"), (9, "bias"), (7, "norm.w"))]
    pattern = one_rule(*(f"frozen: [{', '.join(row)}]" for row in names))
    assert re.match(pattern, "frozen: ['model.unet.a', 'model.unet.b', 'model.unet.c', 'model.unet.d']")
    assert not re.match(pattern, "frozen: ['lost.rank.a', 'lost.rank.b', 'lost.rank.c', 'lost.rank.d']")


def test_pieces_of_a_long_list_are_one_template_wherever_they_were_cut() -> None:
    whole = ", ".join(f"'model.unet.block{n}.weight'" for n in range(300))
    pieces = [whole[at : at + 997] for at in range(100, 6000, 997)]
    pattern = one_rule(*pieces)
    assert re.match(pattern, whole[33:1200])
    assert not re.match(pattern, pieces[0] + " and then it failed")


def test_a_line_that_repeats_word_for_word_is_learned_and_one_that_came_twice_is_not() -> None:
    assert one_rule(*["rank barrier reached"] * 3) == "^rank +barrier +reached$"
    assert mine(["rank barrier reached"] * 2) == []


def test_every_other_line_of_a_shape_is_held_back() -> None:
    miner = Miner()
    taken = [miner.add(f"lane {n} chosen") for n in range(10)]
    assert sum(taken) == 5
    ((_, template),) = miner.proposals()
    assert not set(template.samples) & set(template.held)


def test_the_miner_is_bounded() -> None:
    miner = Miner()
    for number in range(25_000):
        miner.add("word" + "abcdefghij"[number % 10] * (number % 900) + f" {number}")
        miner.add("x" * 5000)
    assert len(miner._shapes) <= 20_000
    assert len(list(miner.proposals())) > 0


def test_no_rule_is_made_of_lines_that_redaction_changes(tmp_path: Path) -> None:
    secret = [f"pulled shard {n} of 40 as alice@example.com" for n in range(40)]
    below = [line for n in range(40) for line in ("- name: HF_PASSWORD", f"  value: CorrectHorse{n}")]
    book = SqliteBook(tmp_path / "b.db")
    lesson = learn([job_of("\n".join([*LINES, *secret, *below]) + "\n")], book)
    assert len(lesson.active) >= 1
    kept = json.dumps([str(known) for known in book.rules()]) + exported(lesson.active)
    assert "bucket" in kept
    assert "alice" not in kept
    assert "CorrectHorse" not in kept


@pytest.mark.parametrize(
    ("pattern", "lines", "name"),
    [
        (r"^lane +keeper +chose +lane +\d+$", LANES, None),
        (r"lane keeper chose lane \d+", LANES, "not-anchored"),
        (r"^lane keeper chose lane \d+$|anything", LANES, "not-anchored"),
        (r"^lane keeper chose lane \d+$|^rank \d+: shar.*", LANES, "catch-all"),
        (r"^(?:lane keeper chose lane \d+$|rank \d+: shar.*)", LANES, "catch-all"),
        (r"^lane keeper (?:chose|left) lane \d+$", LANES, None),
        (r"^.*$", LANES, "catch-all"),
        (r"^\w+ \w+ \w+ \w+ \d+$", LANES, "catch-all"),
        (r"^lane (?:\w{1,400} ?){1,400}$", LANES, "expensive"),
        (r"^lane keeper (?=chose)chose lane \d+$", LANES, "expensive"),
        (r"^lane keeper chose (lane) \1", LANES, "expensive"),
        ("^lane keeper " + "x?" * 1500, LANES, "expensive"),
        (r"^lane keeper chose (", LANES, "does-not-compile"),
        (r"^lane keeper chose lane 0$", LANES, "misses-its-lines"),
        (r"^lane keeper chose lane \d+$", LANES[:1], "overfitted"),
        (r"^RuntimeError: lane \d+$", tuple(f"RuntimeError: lane {n}" for n in range(5)), "drops-evidence"),
        (r"^ERROR: lane keeper is \w+$", tuple(f"ERROR: lane keeper is {w}" for w in ("up", "on", "idle")), "drops-evidence"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 60 else "",
)
def test_what_is_refused_and_why(pattern: str, lines: tuple[str, ...], name: str | None) -> None:
    assert refusal(pattern, *lines) == name


def test_a_pattern_that_kills_the_compiler_is_refused_and_the_others_are_still_judged() -> None:
    killer = proposal("^lane keeper " + "(?:a{1,60}b{1,60}c{1,60}){1,16}" * 3, "lane keeper abc", name="killer")
    good = proposal(r"^lane +keeper +chose +lane +\d+$", LANES[0], name="good")
    found = judged([killer, good], {"killer": ["lane keeper abc"] * 3, "good": LANES}, (), BESIDE)
    assert set(found) == {"killer"}


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        (r"loss=([\d.]+)", None),
        (r"loss=([\d.]+)(?: by (?:\w+)+!)?", "expensive"),
        (r"loss=((?:\d{1,500}){1,500})", "expensive"),
        (r"loss=([\d.]+)\p{L}?", "does-not-compile"),
        (r"loss=([\d.]+", "does-not-compile"),
    ],
)
def test_a_metric_passes_the_door_too(metric: str, name: str | None) -> None:
    lines = [f"lane keeper chose loss=1.{n} by {'a' * 60}" for n in range(3)]
    rule = replace(proposal(r"^lane keeper chose loss=[\d.]+ by \w+$", *lines), metrics=(("loss", metric),))
    found = judged([rule], {"p": lines}, [], BESIDE)
    assert (found["p"].name if found else None) == name


def promote(book: SqliteBook, name: str, **more: Any) -> str:
    """What promoting it is answered with."""
    try:
        return move(book, name, "active", "by hand", NOW, everywhere=True, **more).state
    except RuleError as error:
        return error.what


@pytest.mark.parametrize("state", ["proposed", "retired", "shadow"])
def test_nobodys_word_lets_a_rule_act_that_does_not_pass_the_door(tmp_path: Path, state: State) -> None:
    book = SqliteBook(tmp_path / "learned.db")
    book.add(lanes(state))
    for name, pattern in (("unclosed", "^lane (keeper$"), ("wide", "^.*$")):
        book.add(Learned(proposal(pattern, *LANES, name=name), state))
    assert promote(book, "p") == "active"
    assert "does-not-compile" in promote(book, "unclosed")
    if state != "shadow":  # what is there has passed
        assert "catch-all" in promote(book, "wide")


def test_a_rule_that_does_not_compile_here_does_nothing_and_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for state in ("shadow", "active"):
        book = SqliteBook(tmp_path / f"{state}.db")
        book.add(lanes(state, scope="global"))
        book.add(Learned(proposal("^lane (keeper$", *LANES, name="unclosed"), state, scope="global"))
        shadow(book, LANES, [], NOW)
        assert "unclosed" not in {rule.id for rule in working_rules(book, None)}
        assert "the learned rule unclosed does nothing here" in caplog.text
        caplog.clear()
    assert "p" in {rule.id for rule in working_rules(book, None)}


def test_nobodys_word_lets_a_filter_drop_what_a_failure_began_with(tmp_path: Path) -> None:
    book = SqliteBook(tmp_path / "learned.db")
    book.add(lanes("retired"))
    assert "drops-evidence" in promote(book, "p", evidence=[LANES[0]])
    assert promote(book, "p") == "active"


FAILURE = Rule(
    "f", "failures", "lane keeper is gone", reason="runtime_error", layer="user", severity="fatal", symptom=True,
    action="restart", mitigation="ask the lane's owner", reference="lane 3", matches=(Example("lane keeper is gone"),),
    misses=(Example("the keeper is gone"),),
)  # fmt: skip
AWAY = [f"FlashStore: shelf {n} is away" for n in range(12)]


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [
        ("(shelf does not compile here", "FlashStore: shelf 77 is away"),
        (r"FlashStore: shelf \d+ is", "FlashStore: shelf <secret> is away"),
    ],
    ids=["by its example", "by its pattern"],
)
def test_a_filter_may_not_drop_what_a_learned_failure_rule_knows(tmp_path: Path, pattern: str, shown: str) -> None:
    book = SqliteBook(tmp_path / "learned.db")
    book.add(Learned(replace(FAILURE, pattern=pattern, matches=(Example(shown),)), "shadow", scope="global"))
    lesson = learn([job_of("\n".join(LINES + AWAY) + "\n")], book)
    assert [(refusal.name, "shelf" in rule.pattern) for rule, refusal in lesson.refused] == [("drops-evidence", True)]
    states = {"shelf" in one.rule.pattern: one.state for one in book.rules(family="filters")}
    assert states == {False: "active", True: "retired"}


def test_a_filter_may_not_drop_what_a_failure_began_with(tmp_path: Path) -> None:
    unexplained = "\n".join([*LINES, *AWAY, *AWAY]) + "\nsrun: error: node1: task 0: Exited with exit code 1\n"
    for name, log, past in (("own", unexplained, []), ("past", "\n".join(LINES + AWAY) + "\n", AWAY[:1])):
        book = SqliteBook(tmp_path / f"{name}.db")
        lesson = learn([job_of(log)], book, past=past)
        assert [refusal.name for rule, refusal in lesson.refused if "shelf" in rule.pattern] == ["drops-evidence"], name
        assert len(lesson.active) == 1


NOW = 1_800_000_000.0


def lanes(state: State = "shadow", **fields: Any) -> Learned:
    return Learned(proposal(r"^lane +keeper +chose +lane +\d+$", *LANES), state, changed=NOW, **fields)


def test_states_and_counts(tmp_path: Path) -> None:
    book = SqliteBook(tmp_path / "sub" / "learned.db")
    assert book.add(lanes())
    assert not book.add(lanes())
    assert settle(book, NOW) == []
    shadow(book, LANES, [], NOW)
    (known,) = settle(book, NOW)
    assert known.state == "active"
    assert book.find("p") == known
    assert [one.rule.id for one in book.rules("active")] == ["p"]
    assert "p" in {one.id for one in working_rules(book, "")}
    assert "p" not in {one.id for one in working_rules(book, None)}
    move(book, "p", "retired", "rotten", NOW)
    assert book.rules("active") == []


def test_a_rule_that_met_evidence_in_shadow_is_retired_and_cannot_be_promoted(tmp_path: Path) -> None:
    book = SqliteBook(tmp_path / "learned.db")
    book.add(lanes())
    shadow(book, LANES, [LANES[0]], NOW)
    (known,) = settle(book, NOW)
    assert known.state == "retired"
    with pytest.raises(RuleError, match="evidence of failure"):
        move(book, "p", "active", "by hand", NOW)


@pytest.mark.parametrize(
    ("known", "state", "scope"),
    [
        (lanes(), "shadow", "workloads"),
        (lanes(workloads={"a": Counts(5, 0, 1, NOW)}), "active", "workloads"),
        (lanes(workloads={"a": Counts(5, 1, 1, NOW)}), "retired", "workloads"),
        (lanes("active", workloads={"a": Counts(5, 1, 1, NOW)}), "retired", "workloads"),
        (lanes("active", workloads={"a": Counts(5, 0, 1, NOW - ROT_S)}), "active", "workloads"),
        (lanes("active", workloads={str(n): Counts(5, 0, 1, NOW) for n in range(WIDE)}), "active", "global"),
        (lanes("active", workloads={str(n): Counts(0, 0, 1) for n in range(WIDE)}), "active", "workloads"),
        (lanes("retired", workloads={"a": Counts(5, 0, 1, NOW)}), "retired", "workloads"),
        (Learned(FAILURE, "shadow", workloads={"a": Counts(0, 0, CLEAN_JOBS - 1)}), "shadow", "workloads"),
        (Learned(FAILURE, "shadow", workloads={"a": Counts(0, 0, CLEAN_JOBS)}), "active", "workloads"),
        (Learned(FAILURE, "shadow", workloads={"a": Counts(1, 1, CLEAN_JOBS)}), "retired", "workloads"),
    ],
)
def test_what_state_follows_from_which_counts(known: Learned, state: State, scope: str) -> None:
    after = followed(known, NOW + 1)
    assert (after.state, after.scope) == (state, scope)


def test_a_rule_that_matches_nothing_for_long_is_retired() -> None:
    known = lanes("active", workloads={"a": Counts(5, 0, 1, NOW)})
    assert followed(known, NOW + ROT_S).state == "active"
    assert "rotten" in (followed(known, NOW + ROT_S + 1).why or "")


def test_whom_a_rule_acts_for() -> None:
    known = lanes("active", workloads={"a": Counts(5, 0, 1, NOW)})
    assert [known.acts_for(workload) for workload in ("a", "b", None)] == [True, False, False]
    assert replace(known, scope="global").acts_for(None)
    assert not moved(known, "retired", "rotten", NOW).acts_for("a")


def test_a_book_keeps_every_field_of_both_families(tmp_path: Path) -> None:
    book = SqliteBook(tmp_path / "learned.db")
    metric = replace(lanes().rule, id="m", pattern="^lane keeper (\\d+)", metrics=(("step", "(\\d+)"),))
    entered = [
        Learned(FAILURE, "shadow", "global", {"by": "person"}, "told", (), {"a": Counts(1, 0, 2, 3.5)}, 5.0, 6.0),
        Learned(metric, "proposed", "workloads", {"by": "miner"}, None, LANES, {}, 7.0, 8.0),
    ]
    for known in entered:
        assert book.add(known)
    book.close()
    assert SqliteBook(tmp_path / "learned.db").rules() == entered


def test_two_that_write_at_once_do_not_overwrite_each_other(tmp_path: Path) -> None:
    one, other = (SqliteBook(tmp_path / "learned.db") for _ in range(2))
    one.add(lanes())
    seen = other.find("p")
    assert seen is not None
    move(one, "p", "retired", "by hand", NOW)
    assert not other.write(moved(seen, "active", None, NOW), "shadow")
    assert other.rules("active") == []


def test_what_was_proposed_when_a_run_broke_off_is_judged_by_the_next(tmp_path: Path) -> None:
    book = SqliteBook(tmp_path / "learned.db")
    propose(book, lanes().rule, {"by": "miner"}, LANES, NOW)
    propose(book, proposal("^.*$", *LANES, name="wide"), {"by": "miner"}, LANES, NOW)
    book.close()
    book = SqliteBook(tmp_path / "learned.db")
    assert [rule.id for rule, _ in judge(book, [], NOW)] == ["wide"]
    assert [known.state for known in book.rules()] == ["shadow", "retired"]
    assert all(known.lines == () for known in book.rules())


BEFORE = """
create table rules (
    id text primary key, pattern text not null unique, state text not null, kind text, title text, framework text,
    metrics text not null, matches text not null, misses text not null, provenance text not null, why text,
    matched integer not null default 0, dirty integer not null default 0, created real not null, changed real not null
)
"""


def test_a_book_of_the_first_format_is_taken_over(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "old.db") as base:
        base.execute(BEFORE)
        row = (
            "p",
            "^a b$",
            "active",
            "debug",
            "t",
            "learned",
            '[["step", "x"]]',
            '["a b"]',
            '["c"]',
            '{"by": "miner"}',
            "w",
            4,
            0,
        )
        base.execute("insert into rules values (?,?,?,?,?,?,?,?,?,?,?,?,?,1.0,2.0)", row)
    for _ in range(2):
        (known,) = SqliteBook(tmp_path / "old.db").rules()
        assert (known.state, known.scope, known.matched, known.rule.matches[0].line) == ("active", "global", 4, "a b")
        assert known.rule.metrics == (("step", "x"),)


@pytest.mark.parametrize(
    ("statement", "what"),
    [("create table rules (id text)", "something else"), ("pragma user_version = 99", "later version")],
)
def test_a_file_that_is_no_book_of_ours_is_left_as_it_is(tmp_path: Path, statement: str, what: str) -> None:
    with sqlite3.connect(tmp_path / "other.db") as base:
        base.execute(statement)
    with pytest.raises(RuleError, match=what):
        SqliteBook(tmp_path / "other.db")


def test_failure_rules_pass_the_same_door() -> None:
    wide = replace(FAILURE, id="wide", pattern="lane keeper")
    lost = replace(FAILURE, id="lost", pattern="lane keeper was lost")
    slow = replace(FAILURE, id="slow", pattern="lane (?:a|aa)+$", matches=(Example("lane " + "a" * 60 + "!"),))
    found = judged(
        [FAILURE, wide, lost, slow], {name: ["lane keeper is gone"] for name in ("f", "wide", "lost")}, (), BESIDE, LANES
    )
    assert {name: refusal.name for name, refusal in found.items()} == {
        "wide": "alarms-on-healthy",
        "lost": "misses-own-example",
        "slow": "expensive",
    }


def test_a_book_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RuleError, match="cannot be opened"):
        SqliteBook(tmp_path / "file" / "learned.db")


def test_an_export_can_be_read_back() -> None:
    filters = [Learned(proposal(r"^lane +keeper: 'a' +\d+$", "lane keeper: 'a' 3"), "active")]
    (rule,) = parse(exported(filters), "learned.yaml", "filters")
    assert (rule.id, rule.pattern, rule.matches[0].line) == ("p", r"^lane +keeper: 'a' +\d+$", "lane keeper: 'a' 3")
    (rule,) = parse(exported([Learned(FAILURE, "active")]), "learned.yaml", "failures")
    names = ("id", "pattern", "reason", "layer", "severity", "symptom", "action", "mitigation", "reference")
    assert [getattr(rule, name) for name in names] == [getattr(FAILURE, name) for name in names]


def test_learning_from_a_job_and_not_from_its_failure(tmp_path: Path) -> None:
    book = SqliteBook(tmp_path / "learned.db")
    errors = "".join(f"ERROR: lane keeper lost bucket b{n}\n" for n in range(20))
    lesson = learn([job_of("\n".join(LINES) + "\n" + errors)], book)
    assert lesson.lines == 40
    assert [known.state for known in lesson.active] == ["active"]
    assert all("lost" not in known.rule.pattern for known in book.rules())


def test_the_commands(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("\n".join(LINES) + "\nKeyError: 'x'\n")
    learned = json.loads(diagnose("rules", "learn", "job.log", "--book", "b.db", "--json").stdout)
    (name,) = learned["active"]
    before = json.loads(diagnose("replay", "job.log", "--json").stdout)
    after = json.loads(diagnose("replay", "job.log", "--json", "--learned", "b.db").stdout)
    assert (before["compression"]["lines_kept"], after["compression"]["lines_kept"]) == (41, 1)
    assert after["diagnosis"]["reason"] == "key_error"
    assert name in diagnose("rules", "learned", "--book", "b.db").stdout
    assert f"id: {name}" in diagnose("rules", "export", "--book", "b.db").stdout
    assert diagnose("rules", "retire", name, "--book", "b.db").stdout == f"{name} is retired\n"
    assert diagnose("rules", "promote", "none", "--book", "b.db").returncode == 2
