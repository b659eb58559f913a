"""No regular expression of the package takes far longer for a longer text: a hostile line would stop its reader.

For each expression texts are made that lead into its repeats and do not end as it wants (``tests.support.expressions``). Its
time for one text is compared with that for a part of it, in processor time of the thread, so nothing else counts.
"""

from __future__ import annotations

import re

import pytest
import regex

from diagnose.knowledge.rules import load
from diagnose.matching import shapes
from tests.support.expressions import Expression, expressions, slow

BOUNDED = {
    "diagnose.accuracy._HOST": "names in the labels of a corpus, which its owner writes",
    "diagnose.checkpoints.around._ANY": "names of folders",
    "diagnose.compression.names.NAME": "the few words before a number",
    "diagnose.compression.names._WRAPPED": "the few signs before a number",
    "diagnose.diagnosis.likeness._LIBRARY_WARNS": "400 signs",
    "diagnose.diagnosis.tracebacks._CLASS": "the name of an exception's class",
    "diagnose.diagnosis.places._KINDS": "names of functions and of files",
    "diagnose.diagnosis.weighing.counting._WORD": "the few signs before a number",
    "diagnose.learning.miner._PART": "4,096 signs in the process that learns",
    "diagnose.learning.miner._TOKEN": "4,096 signs in the process that learns",
    "diagnose.nodecheck.launchers: ',(?![^\\\\[]*\\\\])'": "a list of nodes that its owner writes",
    "diagnose.reading.dumps.text._GDB_CALL": "1,000 signs",
    "diagnose.reading.prefixes._CLOCK": "80 signs",
    "diagnose.reading.dresses._NUMBERINGS": "the beginning of a line: it is never looked for within",
    "diagnose.diagnosis.candidates: '[A-Z]\\\\w*(?:Error|Exception|Timeout|Interrupt|Exit)\\\\b'": "the pattern of a rule",
    "diagnose.learning.write_failures: '(?:\\\\\\\\s\\\\+)+\\\\Z'": "a pattern that was just written",
}
"""what may cost the square of its length, and what it is asked about"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_expression_takes_far_longer_for_a_longer_text() -> None:
    asked = expressions()
    assert len(asked) > 400
    assert set(BOUNDED) <= {one.place for one in asked}, "what is gone needs no exception"
    found = [str(told) for one in asked if one.place not in BOUNDED and (told := slow(one))]
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_expression_of_a_shipped_rule_takes_far_longer_for_a_longer_line() -> None:
    """Those that search lines: for numbers, and where Hyperscan cannot decide alone. One line of a job's once took 28 s."""
    asked = [
        Expression(f"{rule.id}.{name}", re.compile(pattern.encode()), True) for rule in load() for name, pattern in rule.metrics
    ]
    analyses = shapes.analyse(rule.pattern for rule in load())
    for rule in load():
        if analyses[rule.pattern].confirmed:
            asked.append(Expression(rule.id, regex.compile(rule.pattern.encode()), True))
    assert len(asked) > 150
    found = [str(told) for one in asked if (told := slow(one))]
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "searched"),
    [
        (r"^\W*(?:[\w-]+[ -]+){0,3}\W*(?:INFO)\b", False),  # a line of dashes once took 45 s
        (r"\s+$", True),
        (r"[\w.-]+:\d+ NCCL", True),
        (r"(?:a|b|ab)*c", False),
        (r".*x.*y", False),
    ],
)
def test_what_takes_far_longer_is_found(pattern: str, searched: bool) -> None:
    assert slow(Expression("here", re.compile(pattern), searched)) is not None


@pytest.mark.parametrize(
    ("pattern", "searched"),
    [(r"\w+ \d+", False), (r"(?<!\s)\s++$", True), (r"(?<![\w.-])[\w.-]++:\d+ NCCL", True), (r"(?:a|b)*+c", False)],
)
def test_what_does_not_is_not(pattern: str, searched: bool) -> None:
    assert slow(Expression("here", re.compile(pattern), searched)) is None
