"""The rules that ship, as they ship: every example, every conflict, and that each is known by the documents."""

from __future__ import annotations

import functools

import pytest

from diagnose.knowledge.rules import Rule, RuleSet, load
from diagnose.matching.matcher import Matcher
from diagnose.matching.shapes import sensitivity
from diagnose.verification import rules as verification

RULES = load(examples=True)
EXAMPLES = [
    (rule, kind, number)
    for rule in RULES
    for kind, examples in (("matches", rule.matches), ("misses", rule.misses))
    for number in range(len(examples))
]


@functools.cache
def alone(rule_id: str) -> Matcher:
    rule = RULES.find(rule_id)
    assert rule is not None
    return Matcher(RuleSet((rule,)), "plain")


@pytest.mark.parametrize(("rule", "kind", "number"), EXAMPLES, ids=[f"{r.name} {k}[{n}]" for r, k, n in EXAMPLES])
def test_example(rule: Rule, kind: str, number: int) -> None:
    example = getattr(rule, kind)[number]
    body = verification.body_of(example.line)
    assert (alone(rule.id).judge(body) == 0) == (kind == "matches"), example.line
    found = verification.captures_of(rule, body)
    assert {name: found.get(name) for name, _ in example.captures} == dict(example.captures)


def test_no_rule_is_objected_to() -> None:
    assert [f"{o.place} {o.rule.id} [{o.name}]: {o.what}" for o in verification.examine(RULES)] == []


def test_every_rule_says_who_prints_it_and_what_to_do() -> None:
    lacking = [rule.id for rule in RULES if not (rule.title and rule.printed_by and rule.reference)]
    lacking += [rule.id for rule in RULES if rule.family == "failures" and not rule.mitigation]
    assert lacking == []


def test_metric_rules_are_blind_to_numbers() -> None:
    """They match most lines of a log; scanning each of those again would be the end of the cache."""
    hot = [rule for rule in RULES if rule.kind in ("metric", "progress")]
    sensitive = {rule.id for rule in hot if "digits" in (sensitivity(rule.pattern) or "")}
    assert sensitive <= {"deepspeed-scale", "rich-bar"}  # a loss scale of 1 is bad news; rich's bars are rare
