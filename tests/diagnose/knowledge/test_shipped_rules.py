"""The rules that ship, as they ship: every example, every conflict, and that each is known by the documents."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from diagnose.knowledge.rules import Example, Rule, load
from diagnose.matching.matcher import EARLY, Matcher
from diagnose.matching.shapes import sensitivity
from diagnose.verification import rules as verification

RULES = load(examples=True)


@functools.cache
def shipped() -> Matcher:
    """All rules at work, in the database that comes ready with the package."""
    return Matcher(RULES, "plain", reserved=EARLY)


def faults(rule: Rule, number: int) -> Iterator[str]:
    """What is wrong with the examples of ``rule``, which has this number in the matcher, each with its place."""
    for kind, examples in (("matches", rule.matches), ("misses", rule.misses)):
        for example in examples:
            body = verification.body_of(example.line)
            place = f"{rule.file}:{example.at} {rule.id} [{kind}] {example.line}"
            if (number in shipped().matches(body)) != (kind == "matches"):
                yield f"{place}: it does{' not' if kind == 'matches' else ''} match"
            found = verification.captures_of(rule, body)
            for name, wanted in example.captures:
                if found.get(name) != wanted:
                    yield f"{place}: {name} is {found.get(name)!r}, not {wanted!r}"


@pytest.mark.parametrize("file", sorted({rule.file for rule in RULES}))
def test_examples(file: str) -> None:
    """Each rule matches its examples and none of its near misses, among all the others, and captures what it says."""
    of_file = [(rule, EARLY + at) for at, rule in enumerate(RULES) if rule.file == file]
    assert [fault for rule, number in of_file for fault in faults(rule, number)] == []


def test_an_example_that_is_wrong_would_be_told() -> None:
    number, rule = next((EARLY + at, rule) for at, rule in enumerate(RULES) if rule.id == "xid-fell-off-bus")
    line = rule.matches[0].line
    turned = replace(rule, matches=rule.misses[:1], misses=(Example(line, 7, (("xid", "80"),)),))
    assert [(fault.partition(" [")[0], fault.rpartition(": ")[2]) for fault in faults(turned, number)] == [
        (f"{rule.file}:{rule.misses[0].at} xid-fell-off-bus", "it does not match"),
        (f"{rule.file}:7 xid-fell-off-bus", "it does match"),
        (f"{rule.file}:7 xid-fell-off-bus", "xid is '79', not '80'"),
    ]


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
