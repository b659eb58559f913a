"""One word per concept: what people read uses none of the words that were given up, and says "per" where it means it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.settings import Settings
from tests.conftest import ROOT
from tests.diagnose.cli.test_help import EVERY

RETIRED = {
    r"(kept|compressed) logs?\b": "kept lines",
    r"raw ?log archive|archive thread|\brawlogs?\b": "raw logs",
    r"(incident|error) groups?\b": "failure group, or group",
    r"\bbook of rules\b|\brule book\b": "rule store",
    r"\bfiltered lines\b": "dropped lines",
}
"""expression -> the word to use instead; docs/README.md and the pages that it lists have the words"""
_NUMBER = r"\b\d[\d.,]*"
_UNIT = r"(?: ?(?:s|ms|%|B|[kMG]i?B|bytes|lines|calls|tokens|times|requests|questions|isolations))?"
_NOUN = r"(?:second|minute|hour|day|week|year|line|job|node|rank|file|source|step|answer|request|token|page)"
_PER = rf"{_NUMBER}{_UNIT} an? {_NOUN}\b"
_CODE = re.compile(r"^```.*?^```$|^    .*?$|`[^`]*`|\]\([^)]*\)|https?://\S+", re.MULTILINE | re.DOTALL)
PAGES = sorted(
    path
    for folder in (".", "docs", "docs/decisions", "benchmarks", "deploy", "fixtures", "prompts")
    for path in (ROOT / folder).glob("*.md")
    if path.name != "CHANGELOG.md"  # it tells of things by the names that they had
)


def objections(text: str) -> Iterator[str]:
    """What a sentence says in a word that was given up, with the word to use."""
    for expression, better in RETIRED.items():
        for found in re.finditer(expression, text, re.IGNORECASE):
            yield f"{found[0]!r}: write {better!r}"
    for found in re.finditer(_PER, text):
        yield f"{found[0]!r}: write 'per'"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_pages(page: Path) -> None:
    text = page.read_text()
    prose = _CODE.sub(lambda code: "\n" * code[0].count("\n"), text)
    assert [(number, one) for number, line in enumerate(prose.splitlines(), 1) for one in objections(line)] == []


@pytest.mark.parametrize("parser", EVERY, ids=lambda parser: parser.prog)
def test_help(parser: object) -> None:
    assert list(objections(" ".join(str(parser.format_help()).split()))) == []  # type: ignore[attr-defined]


def test_settings() -> None:
    said = {name: list(objections(str(field.description))) for name, field in Settings.model_fields.items()}
    assert {name: found for name, found in said.items() if found} == {}


@pytest.mark.parametrize(
    "wrong",
    [
        "Some of the compressed log.",
        "the Kept log in memory",
        "30 s an answer",
        "at most 32 a file",
        "4 % a day",
    ],
)
def test_a_word_that_was_given_up_is_found(wrong: str) -> None:
    assert len(list(objections(wrong))) == 1


@pytest.mark.parametrize(
    "right",
    [
        "the kept lines of a job",
        "0.9 if a line states the cause",
        "30 s per answer",
        "one of 4 nodes a person chose",
    ],
)
def test_other_words_are_let_be(right: str) -> None:
    assert list(objections(right)) == []
