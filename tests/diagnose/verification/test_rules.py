"""What makes a rule unacceptable, by name."""

from __future__ import annotations

import pytest

from diagnose.knowledge.rules import RuleSet, parse
from diagnose.verification.rules import examine, how_far

GOOD = "examples: {matches: ['start of demo 1'], misses: ['start of a demo']}"


def names(text: str) -> set[str]:
    rules = RuleSet.of(parse("layer: user\nrules:\n" + text, "demo.yaml"))
    return {f"{objection.rule.id} {objection.name}" for objection in examine(rules)}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("kind: debug, pattern: '^start of demo', " + GOOD, set()),
        ("kind: debug, pattern: '^start (of demo', " + GOOD, {"r does-not-compile"}),
        ("kind: debug, pattern: 'x*', " + GOOD, {"r does-not-compile"}),
        ("kind: debug, pattern: '^start of demo'", {"r no-match-example", "r no-miss-example"}),
        ("kind: debug, pattern: '^begin of demo', " + GOOD, {"r misses-own-example"}),
        ("kind: debug, pattern: '^start of', " + GOOD, {"r matches-own-miss"}),
        ("kind: debug, pattern: '[a-z] *\\d{3}|^start of demo', " + GOOD, {"r expensive"}),
        ("kind: debug, pattern: '.', examples: {matches: ['a'], misses: ['']}", {"r catch-all"}),
        ("kind: metric, pattern: '^start of demo', metrics: {speed: '(1)'}, " + GOOD, {"r unknown-name"}),
        ("kind: metric, pattern: '^start of demo', metrics: {loss: 'l=(1)'}, " + GOOD, {"r wrong-capture"}),
        ("kind: metric, pattern: '^start of demo', metrics: {loss: '(1)(2)?'}, " + GOOD, {"r wrong-capture"}),
        ("kind: debug, pattern: '^start of demo (?P<rank>1)', examples: {matches: [{line: 'start of demo 1', captures:"
         " {rank: '2'}}], misses: ['start of demo 2']}", {"r wrong-capture"}),
        ("kind: debug, pattern: '^start of demo (?P<rank>1)', examples: {matches: [{line: 'start of demo 1', captures:"
         " {rank: '1'}}], misses: ['start of demo 2']}", set()),
        ("kind: debug, pattern: '^start of demo(?: (?P<rank>1))?', examples: {matches: [{line: 'start of demo', captures:"
         " {rank: '1'}}, {line: 'start of demo 1', captures: {rank: '1'}}], misses: ['start']}", {"r wrong-capture"}),
        ("kind: debug, pattern: '^start of demo (?P<foo>1)', " + GOOD, {"r unknown-name"}),
        ("kind: metric, pattern: '^start of demo', metrics: {loss: '(1)\\p{L}?'}, " + GOOD, {"r does-not-compile"}),
        ("kind: metric, pattern: '^start of demo', metrics: {loss: '(1)(?: (?:[a-z]+)+!)?'}, examples: {matches:"
         " ['start of demo 1 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'], misses: ['start']}", {"r expensive"}),
    ],
)  # fmt: skip
def test_a_rule_alone(rule: str, expected: set[str]) -> None:
    assert names(f"  - {{id: r, {rule}}}\n") == expected


FAILURE = (
    "  - {id: f, reason: key_error, pattern: 'demo broke', examples: {matches: ['start: demo broke'], misses: ['demo']}}\n"
)


def test_a_filter_that_takes_failure_evidence_is_refused() -> None:
    wide = "  - {id: r, kind: debug, pattern: '^start', examples: {matches: ['start of it'], misses: ['no start']}}\n"
    assert names(FAILURE + wide) == {"r drops-failure-line"}


def test_a_failure_rule_that_takes_regular_output_is_refused() -> None:
    regular = "  - {id: r, kind: debug, pattern: '^all: ', examples: {matches: ['all: no demo broke'], misses: ['all']}}\n"
    assert names(FAILURE + regular) == {"f alarms-on-healthy", "r shadowed"}


def test_a_rule_that_never_decides_is_shadowed() -> None:
    twice = FAILURE + FAILURE.replace("id: f", "id: g").replace("key_error", "index_error")
    assert names(twice) == {"g shadowed"}


def test_a_rule_that_decides_one_of_its_examples_is_not_shadowed() -> None:
    wider = (
        "  - {id: g, reason: index_error, pattern: 'demo', examples: {matches: ['a demo broke', 'a demo'], misses: ['dem']}}\n"
    )
    assert "g shadowed" not in names(FAILURE + wider)


@pytest.mark.parametrize(
    ("pattern", "line", "end", "wanted"),
    [
        ("gpu \\d+ is lost", "the gpu 12 was lost", 11, "is lost"),
        ("gpu", "a gap", 3, "pu"),
        ("gpu", "unlike it", 0, "gpu"),
    ],
)
def test_how_far_a_pattern_matched_is_shown(pattern: str, line: str, end: int, wanted: str) -> None:
    assert how_far(pattern, line.encode()) == (end, wanted)
