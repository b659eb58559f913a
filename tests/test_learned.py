"""Learned rules: mined from lines, refused for good reasons, counted in shadow, and never let in by a back door."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diagnose.agent.miner import Miner, mine
from diagnose.errors import RuleError
from diagnose.learned import Book, exported, judged
from diagnose.learning import learn, shadow, working_rules
from diagnose.rules import Example, Rule, RuleSet, parse
from tests.conftest import Run
from tests.logs import job_of

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
    assert template.count == 40
    assert rule.pattern.startswith("^custom +scheduler +chose +lane +")
    assert rule.pattern.endswith("$")
    assert judged([rule], {rule.id: LINES}, (), BESIDE) == {}


def test_words_that_differ_become_variable() -> None:
    ((rule, _),) = mine([f"moved the {what} shard to the fast tier" for what in ("red", "green", "blue")])
    assert r"[\w.-]+" in rule.pattern
    assert "moved" in rule.pattern


def test_what_came_once_or_twice_is_not_proposed() -> None:
    assert mine(["one odd line", "another thing"]) == []


def test_the_miner_is_bounded() -> None:
    miner = Miner()
    for number in range(25_000):
        miner.add("word" + "abcdefghij"[number % 10] * (number % 900) + f" {number}")
        miner.add("x" * 5000)
    assert len(miner._counts) <= 20_000
    assert len(list(miner.proposals())) > 0


@pytest.mark.parametrize(
    ("pattern", "lines", "name"),
    [
        (r"^lane +keeper +chose +lane +\d+$", LANES, None),
        (r"lane keeper chose lane \d+", LANES, "not-anchored"),
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


def test_states_and_counts(tmp_path: Path) -> None:
    book = Book(tmp_path / "sub" / "learned.db")
    rule = proposal(r"^lane +keeper +chose +lane +\d+$", *LANES)
    assert book.add(rule, "shadow", {"by": "test"})
    assert not book.add(rule, "shadow", {"by": "test"})
    assert [known.rule.id for known in book.settle()] == []
    shadow(book, LANES, [])
    (known,) = book.settle()
    assert known.state == "active"
    assert book.find("p") is not None
    assert [one.rule.id for one in book.rules("active")] == ["p"]
    assert "p" in {one.id for one in working_rules(book)}
    book.move("p", "retired", "rotten")
    assert book.rules("active") == []


def test_a_rule_that_met_evidence_in_shadow_is_retired_and_cannot_be_promoted(tmp_path: Path) -> None:
    book = Book(tmp_path / "learned.db")
    book.add(proposal(r"^lane +keeper +chose +lane +\d+$", *LANES), "shadow", {})
    shadow(book, LANES, [LANES[0]])
    (known,) = book.settle()
    assert known.state == "retired"
    with pytest.raises(RuleError, match="evidence of failure"):
        book.move("p", "active")


def test_a_book_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RuleError, match="cannot be opened"):
        Book(tmp_path / "file" / "learned.db")


def test_an_export_can_be_read_back(tmp_path: Path) -> None:
    book = Book(tmp_path / "learned.db")
    book.add(proposal(r"^lane +keeper: 'a' +\d+$", "lane keeper: 'a' 3"), "active", {})
    (rule,) = parse(exported(book.rules("active")), "learned.yaml", "filters")
    assert (rule.id, rule.pattern, rule.matches[0].line) == ("p", r"^lane +keeper: 'a' +\d+$", "lane keeper: 'a' 3")


def test_learning_from_a_job_and_not_from_its_failure(tmp_path: Path) -> None:
    book = Book(tmp_path / "learned.db")
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
