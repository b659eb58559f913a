"""Rule files: what is read, and how what is wrong is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.errors import RuleError
from diagnose.knowledge.rules import RuleSet, load, parse

GOOD = """
framework: demo
rules:
  - id: demo-line
    kind: debug
    pattern: '^demo'
    examples: {matches: ['demo 1'], misses: ['no demo']}
"""


def test_defaults_of_the_file_are_the_rules() -> None:
    (rule,) = parse(GOOD, "demo.yaml")
    assert (rule.id, rule.framework, rule.kind, rule.family, rule.at) == ("demo-line", "demo", "debug", "filters", 4)
    assert [example.line for example in rule.matches] == ["demo 1"]


def test_yaml_words_stay_words() -> None:
    (rule,) = parse("rules: [{id: no, kind: debug, pattern: 'on'}]", "x.yaml")
    assert (rule.id, rule.pattern) == ("no", "on")


@pytest.mark.parametrize(
    ("text", "where", "what", "remedy"),
    [
        ("rules:\n  - id: a\n    kind: nope\n    pattern: x\n", "f.yaml:2", "kind 'nope' is not known", "init, metric"),
        ("rules:\n  - kind: debug\n    pattern: x\n", "f.yaml:2", "the rule has no id", "add id:"),
        ("rules:\n  - id: a\n    kind: debug\n", "f.yaml:2", "the rule has no pattern", "add pattern:"),
        ("rules:\n  - id: a\n    kind: debug\n    patern: x\n", "f.yaml:2", "unknown field 'patern'", "pattern"),
        ("rules:\n  - id: a\n    reason: sadness\n    pattern: x\n", "f.yaml:2", "'sadness' is not known", "key_error"),
        ("rules:\n  - id: a\n    pattern: 'x\n", "f.yaml:3", "not valid YAML", "single quotes"),
        ("rules: 3\n", "f.yaml", "a list called rules", "docs/rules.md"),
        ("rules:\n  - id: a\n    id: b\n", "f.yaml:3", "'id' is there twice", "keep one"),
        ("rules:\n  - id: a\n    kind: metric\n    pattern: x\n    left: true\n    metrics: {loss: 'x (.)'}\n", "f.yaml:2",
         "has no metrics", "write two rules"),
        ("rules:\n  - id: a\n    kind: metric\n    pattern: x\n    left: true\n    yields: true\n", "f.yaml:2",
         "either left or yields", "write two rules"),
        ("rules:\n  - id: a\n    kind: debug\n    pattern: x\n    examples:\n      matches:\n        - [1]\n", "f.yaml:7",
         "an example must be a line", "quote it"),
        ("rules:\n  - id: \"a\\0\x07\"\n", "f.yaml", "not valid YAML", "UTF-8"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place_and_remedy(text: str, where: str, what: str, remedy: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse(text, "f.yaml")
    assert caught.value.where == where
    assert what in str(caught.value)
    assert remedy in str(caught.value)


def test_an_id_that_is_taken_names_both_places(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yaml").write_text(GOOD)
    with pytest.raises(RuleError, match=r"b\.yaml:4: the rule id 'demo-line' is taken by .*a\.yaml:4"):
        load([tmp_path])


def test_failures_come_before_filters_and_keep_their_order() -> None:
    failing = parse(
        "layer: user\nrules: [{id: f1, reason: key_error, pattern: x}, {id: f2, reason: key_error, pattern: x}]", "f"
    )
    filters = parse("rules: [{id: d1, kind: debug, pattern: x}, {id: d2, kind: debug, pattern: x}]", "d")
    assert [rule.id for rule in RuleSet.of([*filters, *failing])] == ["f1", "f2", "d1", "d2"]


def test_a_missing_path_and_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="no such rule file"):
        load([tmp_path / "none.yaml"])
    with pytest.raises(RuleError, match="the folder has no rule files"):
        load([tmp_path])


def test_the_cache_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    first, second = load([tmp_path]), load([tmp_path])
    assert list(first) == list(second)
    (tmp_path / "a.yaml").write_text(GOOD.replace("^demo", "^other"))
    assert load([tmp_path])[0].pattern == "^other"
