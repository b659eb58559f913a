"""The school: it gathers unknown lines of live jobs, holds lessons about them, and counts rules meanwhile."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from diagnose.knowledge.rules import Rule
from diagnose.learning.learned_rule import Counts, LearnedRule
from diagnose.learning.miner import Template
from diagnose.learning.rule_store import RuleFile, RuleStore
from diagnose.learning.school import School, Workable
from diagnose.learning.write_filters import Written
from diagnose.matching.scan import KEPT

LANE_RULE = Rule("lanes", "filters", r"^lane keeper chose lane \d+$", kind="debug")
UNCLOSED = Rule("unclosed", "filters", r"^lane (keeper chose lane \d+$", kind="debug")
BAD_NUMBER = Rule("bad-number", "filters", r"^loss \d+$", kind="metric", metrics=(("loss", r"loss ((\d+)"),))


@pytest.fixture
def store(tmp_path: Path) -> RuleStore:
    return RuleStore(RuleFile(tmp_path / "learned.db"))


def scan(*lines: str, rule: int = -1) -> tuple[bytes, bytes]:
    """Kept lines as a scanner sends them."""
    records = text = b""
    for number, line in enumerate(lines, 1):
        records += KEPT.pack(number, len(text), len(line), rule, 0, 0, 0)
        text += line.encode()
    return records, text


def found(store: RuleStore, rule: str) -> LearnedRule:
    known = store.find(rule)
    assert known is not None
    return known


def until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


@pytest.mark.parametrize("bad", [UNCLOSED, BAD_NUMBER])
def test_a_rule_that_does_not_compile_here_is_said_once_and_the_others_are_counted(
    store: RuleStore, bad: Rule, capsys: pytest.CaptureFixture[str]
) -> None:
    store.add(LearnedRule(bad, "active", scope="global"))
    store.add(LearnedRule(LANE_RULE, "shadow"))
    school = School(store, Workable(), redacts=False, lesson_s=0)
    school.take("job", "kind", *scan("lane keeper chose lane 7"))
    school.tick()
    school.tick()
    assert found(store, "lanes").state == "active"
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (problem,) = [problem for one in said for problem in one.get("problems", [])]
    assert problem.startswith(f"the learned rule {bad.id} cannot be used here, and is left out: ")


def test_a_rule_that_meets_evidence_is_retired_while_a_lesson_goes_on(store: RuleStore) -> None:
    store.add(LearnedRule(LANE_RULE, "active"))
    school = School(store, Workable(), redacts=False, lesson_s=0)
    over, asked = threading.Event(), []

    def slowly(templates: Sequence[Template], job: str, segment: int) -> Written:
        asked.append(segment)
        assert over.wait(30)
        raise OperationalError("commit", {}, Exception("the lesson is no matter here"))

    school.ask = slowly
    unknown = [f"bucket b{number} was swept in {number} ms" for number in range(40)]
    try:
        for line in (*unknown, *unknown):
            school.take("job", "kind", *scan(line))
            school.tick()
        until(lambda: asked)
        school.take("job", "kind", *scan("lane keeper chose lane 7", rule=0))
        school.tick()
        assert found(store, "lanes").state == "retired"
        assert asked == [1], "one lesson after the other"
    finally:
        over.set()
        until(lambda: not any(thread.name == "lesson" for thread in threading.enumerate()))


class Locked(RuleStore):
    """A store in a database that is locked when the first count is to be stored."""

    locked = True

    def count(self, rule_id: str, workload: str, counts: Counts) -> None:
        if self.locked:
            self.locked = False
            raise OperationalError("update", {}, Exception("database is locked"))
        super().count(rule_id, workload, counts)


def test_counts_that_could_not_be_stored_are_stored_later(tmp_path: Path) -> None:
    store = Locked(RuleFile(tmp_path / "learned.db"))
    store.add(LearnedRule(LANE_RULE, "active"))
    school = School(store, Workable(), redacts=False, lesson_s=0)
    school.take("job", "kind", *scan("lane keeper chose lane 7", rule=0))
    with pytest.raises(OperationalError):
        school.tick()
    school.take("job", "kind", *scan("lane keeper chose lane 8"))
    school.tick()
    assert (found(store, "lanes").counts.matched, found(store, "lanes").counts.dirty, found(store, "lanes").state) == (
        2,
        1,
        "retired",
    )


# --- jobs that have ended


@pytest.mark.parametrize("redacts", [True, False])
def test_lines_that_redaction_changes_are_no_lesson(store: RuleStore, redacts: bool) -> None:
    school = School(store, Workable(), redacts=redacts)
    secret = ("lane keeper of alice@example.com", "- name: HF_PASSWORD", "  value: CorrectHorse")
    school.take("job", "kind", *scan(*secret, *(f"lane keeper chose lane {n}" for n in range(3))))
    (gathered,) = school._gathered.values()
    assert gathered.new == (4 if redacts else 6)
    told = "".join(gathered.miner._shapes)
    assert ("alice" in told, "CorrectHorse" in told) == (not redacts, not redacts)


def test_the_end_brings_the_lessons_that_had_no_turn_yet(store: RuleStore) -> None:
    school = School(store, Workable())
    for kind in ("one", "other"):
        school.take("job", kind, *scan(*(f"{kind} keeper chose lane {n}" for n in range(10))))
    school.finish()
    assert [known.state for known in store.rules()] == ["shadow", "shadow"]
