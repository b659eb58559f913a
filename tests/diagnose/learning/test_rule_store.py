"""Learned rules are kept as they are, and nobody's word lets one act that has not passed the door."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from diagnose.errors import RuleError
from diagnose.learning.learned_rule import Counts, LearnedRule, State, moved
from diagnose.learning.rule_store import RuleFile, RuleStore, move
from tests.support.rules import FAILURE, LANES, NOW, lanes, proposal


def test_a_file_keeps_every_field_of_both_families(tmp_path: Path) -> None:
    store = RuleStore(RuleFile(tmp_path / "learned.db"))
    metric = replace(lanes().rule, id="m", pattern="^lane keeper (\\d+)", metrics=(("step", "(\\d+)"),))
    entered = [
        LearnedRule(FAILURE, "shadow", "global", {"by": "person"}, "told", (), {"a": Counts(1, 0, 2, 3.5)}, 5.0, 6.0),
        LearnedRule(metric, "proposed", "workloads", {"by": "miner"}, None, LANES, {}, 7.0, 8.0),
    ]
    for known in entered:
        assert store.add(known)
    assert RuleStore(RuleFile(tmp_path / "learned.db")).rules() == entered


def test_two_that_write_at_once_do_not_overwrite_each_other(tmp_path: Path) -> None:
    one, other = (RuleStore(RuleFile(tmp_path / "learned.db")) for _ in range(2))
    one.add(lanes())
    seen = other.find("p")
    assert seen is not None
    move(one, "p", "retired", "by hand", NOW)
    assert not other.write(moved(seen, "active", None, NOW), "shadow")
    assert other.rules("active") == []


def version(base: sqlite3.Connection) -> int:
    return int(base.execute("pragma user_version").fetchone()[0])


@pytest.mark.parametrize(
    ("statement", "what"),
    [("create table rules (id text)", "not a file of learned rules"), ("pragma user_version = 99", "later version")],
)
def test_a_file_that_is_not_ours_is_left_as_it_is(tmp_path: Path, statement: str, what: str) -> None:
    with sqlite3.connect(tmp_path / "other.db") as base:
        base.execute(statement)
        before = base.execute("select sql from sqlite_master").fetchall(), version(base)
    with pytest.raises(RuleError, match=what):
        RuleStore(RuleFile(tmp_path / "other.db"))
    with sqlite3.connect(tmp_path / "other.db") as base:
        assert (base.execute("select sql from sqlite_master").fetchall(), version(base)) == before


def test_a_file_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RuleError, match="cannot be opened"):
        RuleStore(RuleFile(tmp_path / "file" / "learned.db"))


def promote(store: RuleStore, name: str, **more: Any) -> str:
    """What promoting it is answered with."""
    try:
        return move(store, name, "active", "by hand", NOW, everywhere=True, **more).state
    except RuleError as error:
        return error.what


@pytest.mark.parametrize("state", ["proposed", "retired", "shadow"])
def test_nobodys_word_lets_a_rule_act_that_does_not_pass_the_door(tmp_path: Path, state: State) -> None:
    store = RuleStore(RuleFile(tmp_path / "learned.db"))
    store.add(lanes(state))
    for name, pattern in (("unclosed", "^lane (keeper$"), ("wide", "^.*$")):
        store.add(LearnedRule(proposal(pattern, *LANES, name=name), state))
    assert promote(store, "p") == "active"
    assert "does-not-compile" in promote(store, "unclosed")
    if state != "shadow":  # what is there has passed
        assert "catch-all" in promote(store, "wide")


def test_nobodys_word_lets_a_filter_drop_what_a_failure_began_with(tmp_path: Path) -> None:
    store = RuleStore(RuleFile(tmp_path / "learned.db"))
    store.add(lanes("retired"))
    assert "drops-evidence" in promote(store, "p", evidence=[LANES[0]])
    assert promote(store, "p") == "active"
