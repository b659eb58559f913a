"""The lesson about jobs that have ended, in the worker process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from diagnose.errors import DiagnoseError
from diagnose.learning import ended
from diagnose.learning.lesson import Heard, heard
from diagnose.learning.rule_store import RuleFile, RuleStore
from tests.support.lessons import learn
from tests.support.logs import job_of
from tests.support.rules import LINES


def test_the_worker_holds_the_same_lesson_as_this_process(tmp_path: Path) -> None:
    job = job_of("\n".join([*LINES, *(f"ERROR: lane keeper lost bucket b{n}" for n in range(20))]) + "\n", fold_after=0)
    here = RuleStore(RuleFile(tmp_path / "here.db"))
    expected = learn([job], here).as_dict()
    there = RuleStore(RuleFile(tmp_path / "there.db"))
    told = ended.learn([heard(job, there)], tmp_path / "there.db")
    assert (told["lines"], len(told["active"]), told["problems"]) == (40, 1, [])
    assert told == expected
    assert [(one.rule.pattern, one.state) for one in there.rules()] == [(one.rule.pattern, one.state) for one in here.rules()]


def test_lines_that_known_failures_began_with_are_evidence_there_too(tmp_path: Path) -> None:
    told = ended.learn([Heard("a", "", LINES, [])], tmp_path / "b.db", past=LINES[:1])
    assert [one["name"] for one in told["refused"]] == ["drops-evidence"]
    assert told["active"] == []


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import sys; sys.stdin.buffer.read(1)", "the worker process has ended in the middle of it"),
        ('print(\'{"done": 1, "result": {"problem": "the database: no such table"}}\', flush=True)', "no such table"),
    ],
    ids=["dies", "cannot"],
)
def test_a_lesson_that_was_not_held_is_an_error_and_nobody_waits_for_ever(tmp_path: Path, code: str, said: str) -> None:
    with pytest.raises(DiagnoseError, match=said):
        ended.learn([Heard("a", "", ["x"], [])], tmp_path / "b.db", worker=(sys.executable, "-c", code))
