"""Learning from logs that have ended: mined, judged, counted in shadow, and never from a failure or a secret."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from diagnose.errors import RuleError
from diagnose.knowledge.rules import Example
from diagnose.learning.learned_rule import LearnedRule, exported
from diagnose.learning.lesson import judge, propose, shadow
from diagnose.learning.rule_store import RuleFile, RuleStore, move, settle, working_matcher
from tests.support.lessons import learn
from tests.support.logs import job_of
from tests.support.rules import FAILURE, LANES, LINES, NOW, lanes, proposal


def test_no_rule_is_made_of_lines_that_redaction_changes(tmp_path: Path) -> None:
    secret = [f"pulled shard {n} of 40 as alice@example.com" for n in range(40)]
    below = [line for n in range(40) for line in ("- name: HF_PASSWORD", f"  value: CorrectHorse{n}")]
    store = RuleStore(RuleFile(tmp_path / "b.db"))
    lesson = learn([job_of("\n".join([*LINES, *secret, *below]) + "\n")], store)
    assert len(lesson.active) >= 1
    kept = json.dumps([str(known) for known in store.rules()]) + exported(lesson.active)
    assert "bucket" in kept
    assert "alice" not in kept
    assert "CorrectHorse" not in kept


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
    store = RuleStore(RuleFile(tmp_path / "learned.db"))
    store.add(LearnedRule(replace(FAILURE, pattern=pattern, matches=(Example(shown),)), "shadow", scope="global"))
    lesson = learn([job_of("\n".join(LINES + AWAY) + "\n")], store)
    assert [(refusal.name, "shelf" in rule.pattern) for rule, refusal in lesson.refused] == [("drops-evidence", True)]
    states = {"shelf" in one.rule.pattern: one.state for one in store.rules(family="filters")}
    assert states == {False: "active", True: "retired"}


def test_a_filter_may_not_drop_what_a_failure_began_with(tmp_path: Path) -> None:
    unexplained = "\n".join([*LINES, *AWAY, *AWAY]) + "\nsrun: error: node1: task 0: Exited with exit code 1\n"
    for name, log, past in (("own", unexplained, []), ("past", "\n".join(LINES + AWAY) + "\n", AWAY[:1])):
        store = RuleStore(RuleFile(tmp_path / f"{name}.db"))
        lesson = learn([job_of(log)], store, past=past)
        assert [refusal.name for rule, refusal in lesson.refused if "shelf" in rule.pattern] == ["drops-evidence"], name
        assert len(lesson.active) == 1


def test_states_and_counts(tmp_path: Path) -> None:
    store = RuleStore(RuleFile(tmp_path / "sub" / "learned.db"))
    assert store.add(lanes())
    assert not store.add(lanes())
    assert settle(store, NOW) == []
    shadow(store, LANES, [], NOW)
    (known,) = settle(store, NOW)
    assert known.state == "active"
    assert store.find("p") == known
    assert [one.rule.id for one in store.rules("active")] == ["p"]
    assert "p" in {one.id for one in working_matcher(store, "").rules}
    assert "p" not in {one.id for one in working_matcher(store, None).rules}
    move(store, "p", "retired", "rotten", NOW)
    assert store.rules("active") == []


def test_a_rule_that_met_evidence_in_shadow_is_retired_and_cannot_be_promoted(tmp_path: Path) -> None:
    store = RuleStore(RuleFile(tmp_path / "learned.db"))
    store.add(lanes())
    shadow(store, LANES, [LANES[0]], NOW)
    (known,) = settle(store, NOW)
    assert known.state == "retired"
    with pytest.raises(RuleError, match="evidence of failure"):
        move(store, "p", "active", "by hand", NOW)


def test_a_rule_that_does_not_compile_here_does_nothing_and_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for state in ("shadow", "active"):
        store = RuleStore(RuleFile(tmp_path / f"{state}.db"))
        store.add(lanes(state, scope="global"))
        store.add(LearnedRule(proposal("^lane (keeper$", *LANES, name="unclosed"), state, scope="global"))
        shadow(store, LANES, [], NOW)
        assert "unclosed" not in {rule.id for rule in working_matcher(store, None).rules}
        assert "the learned rule unclosed cannot be used here" in caplog.text
        caplog.clear()
    assert "p" in {rule.id for rule in working_matcher(store, None).rules}


def test_what_was_proposed_when_a_run_broke_off_is_judged_by_the_next(tmp_path: Path) -> None:
    store = RuleStore(RuleFile(tmp_path / "learned.db"))
    propose(store, lanes().rule, {"by": "miner"}, LANES, NOW)
    propose(store, proposal("^.*$", *LANES, name="wide"), {"by": "miner"}, LANES, NOW)
    store = RuleStore(RuleFile(tmp_path / "learned.db"))
    assert [rule.id for rule, _ in judge(store, [], NOW)] == ["wide"]
    assert [known.state for known in store.rules()] == ["shadow", "retired"]
    assert all(known.lines == () for known in store.rules())


def test_learning_from_a_job_and_not_from_its_failure(tmp_path: Path) -> None:
    store = RuleStore(RuleFile(tmp_path / "learned.db"))
    errors = "".join(f"ERROR: lane keeper lost bucket b{n}\n" for n in range(20))
    lesson = learn([job_of("\n".join(LINES) + "\n" + errors, fold_after=0)], store)
    assert lesson.lines == 40
    assert [known.state for known in lesson.active] == ["active"]
    assert all("lost" not in known.rule.pattern for known in store.rules())
