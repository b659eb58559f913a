"""The states of a learned rule, as they follow from what it met."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagnose.knowledge.rules import parse
from diagnose.learning.learned_rule import CLEAN_JOBS, ROT_S, WIDE, Counts, LearnedRule, State, exported, followed, moved
from tests.support.rules import FAILURE, NOW, lanes, proposal


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
        (LearnedRule(FAILURE, "shadow", workloads={"a": Counts(0, 0, CLEAN_JOBS - 1)}), "shadow", "workloads"),
        (LearnedRule(FAILURE, "shadow", workloads={"a": Counts(0, 0, CLEAN_JOBS)}), "active", "workloads"),
        (LearnedRule(FAILURE, "shadow", workloads={"a": Counts(1, 1, CLEAN_JOBS)}), "retired", "workloads"),
    ],
)
def test_what_state_follows_from_which_counts(known: LearnedRule, state: State, scope: str) -> None:
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


def test_an_export_can_be_read_back() -> None:
    filters = [LearnedRule(proposal(r"^lane +keeper: 'a' +\d+$", "lane keeper: 'a' 3"), "active")]
    (rule,) = parse(exported(filters), "learned.yaml", "filters")
    assert (rule.id, rule.pattern, rule.matches[0].line) == ("p", r"^lane +keeper: 'a' +\d+$", "lane keeper: 'a' 3")
    (rule,) = parse(exported([LearnedRule(FAILURE, "active")]), "learned.yaml", "failures")
    names = ("id", "pattern", "reason", "layer", "severity", "symptom", "action", "mitigation", "reference")
    assert [getattr(rule, name) for name in names] == [getattr(FAILURE, name) for name in names]
